#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/amp/op_rules.h"
#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::amp {

/// Which operation runs in which precision: a built-in table, the compute format of its `lower`
/// rules, and changes to single operations. A plain value: it compares, prints and parses.
///
///     torch compute=bf16 mm=fp32 mylib::attention=lower
///
/// A key of `rules` is `aten::mm` for all overloads of an operation, `aten::softmax.int` for one,
/// `aten::mm.default` for the one without an overload name; a key with an overload goes first.
/// In-place and `out=` forms keep the caller's dtypes and cannot be listed.
struct Policy {
  std::string base = "torch";                         // one of policy_names()
  numerics::Format compute = numerics::Format::bf16;  // fp32, tf32 (both cast to Float), bf16, fp16
  std::map<std::string, Rule> rules;                  // over those of the base

  auto operator<=>(const Policy&) const = default;
};

/// `torch` and `torch-cpu`: the lists of torch 2.13 for CUDA and for CPU, each used here on every
/// device, with compute=bf16. `fp32`: no casts.
MANTISSA_API std::vector<std::string> policy_names();

/// The text form, on one line; operations of ATen without their namespace.
MANTISSA_API std::string to_string(const Policy& policy);

/// Reads the text form: a base, then `compute=FORMAT` and `OPERATION=RULE` in any order.
/// An operation without a namespace is one of ATen; operations are looked up in LibTorch's
/// dispatcher, so a library's own must be loaded. All that is unknown, given twice or without an
/// effect throws InvalidArgument.
MANTISSA_API Policy parse_policy(std::string_view text);

/// The file form:
///
///     base = "torch"        # optional, as is compute
///     compute = "bf16"
///     [rules]
///     "aten::mm" = "fp32"
MANTISSA_API std::string to_toml(const Policy& policy);

/// Reads the file form. `where` names the file in messages, which add the line.
MANTISSA_API Policy parse_policy_toml(std::string_view toml, std::string_view where);

/// A policy from the command line or a run file: the path of a policy file when it contains a `/`
/// or ends in `.toml`, else the text form. Throws IoError when the file cannot be read.
MANTISSA_API Policy find_policy(const std::string& name_or_path);

/// Every overload that the policy gives a rule other than `keep`, as the dispatcher writes it:
/// `aten::mm`, `aten::softmax.int`. Entries of a built-in table that this LibTorch lacks are left
/// out. Throws InvalidArgument as parse_policy does.
MANTISSA_API std::map<std::string, Rule> resolved_rules(const Policy& policy);

}  // namespace mantissa::amp
