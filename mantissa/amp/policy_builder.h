#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "mantissa/amp/operations.h"
#include "mantissa/amp/policy.h"

namespace mantissa::amp {

/// What both readers of policies share. `where` begins the message: `policy`, `policy a.toml:3`.
class PolicyBuilder {
 public:
  void set_base(std::string_view name, std::string_view where);
  void set_compute(std::string_view format, std::string_view where);
  void add_rule(std::string_view operation, std::string_view rule, std::string_view where);

  /// Checks what needs the whole policy.
  Policy build(std::string_view where) const;

 private:
  OperationIndex operations_;
  std::string base_ = Policy().base;
  std::optional<numerics::Format> compute_;
  std::map<std::string, Rule> rules_;
};

}  // namespace mantissa::amp
