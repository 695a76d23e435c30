#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "mantissa/amp/operations.h"
#include "mantissa/amp/policy.h"

namespace mantissa::amp {

/// What both readers of policies share. `where` begins the message: `policy`, `policy a.toml:3`.
/// Settings may come in any order; what needs the base is put together by build().
class PolicyBuilder {
 public:
  void set_base(std::string_view name, std::string_view where);

  /// `compute`, `param`, `output` and the switches. False when there is no such setting.
  bool set(std::string_view name, std::string_view value, std::string_view where);
  void add_rule(std::string_view operation, std::string_view rule, std::string_view where);
  void add_scope(std::string_view glob, std::string_view format, std::string_view where);
  void add_parameter(std::string_view glob, std::string_view format, std::string_view where);

  /// Of all that set() knows.
  static std::vector<std::string> setting_names();

  /// Checks what needs the whole policy.
  Policy build(std::string_view where) const;

 private:
  OperationIndex operations_;
  std::string base_ = Policy().base;
  std::optional<numerics::Format> compute_;
  std::optional<numerics::Format> param_;
  std::optional<numerics::Format> output_;
  std::map<Fix, bool> fixes_;
  std::map<std::string, Rule> rules_;
  std::map<std::string, numerics::Format> scopes_;
  std::map<std::string, numerics::Format> parameters_;
};

}  // namespace mantissa::amp
