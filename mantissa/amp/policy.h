#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/amp/op_rules.h"
#include "mantissa/base/api.h"
#include "mantissa/numerics/format.h"

namespace mantissa::amp {

/// A known deviation of torch's autocast, as a switch of a policy: off, it is as in torch.
enum class Fix : uint8_t {
  reduce,      // =fp32: the gradients of a parameter that a region uses many times add up in FP32
               // (=compute: in the compute format, before the one cast back)
  promote,     // =all: further operations that refuse mixed formats have rule widest (=listed)
  foreign,     // =widen: `widest` takes a 16-bit format other than compute (=refuse: it throws)
  losses,      // =fp32: also those losses whose parts alone are listed (=parts)
  statistics,  // =fp32: mean, var, std and their like (=keep)
  fft,         // =fp32: Fourier transforms (=keep)
};

inline constexpr std::array kFixes = {Fix::reduce, Fix::promote,    Fix::foreign,
                                      Fix::losses, Fix::statistics, Fix::fft};

/// `reduce`, and the words of its two values.
struct FixWords {
  std::string_view name;
  std::string_view on;
  std::string_view off;
};

MANTISSA_API FixWords words(Fix fix);

/// Which operation runs in which precision, and in which formats parameters, outputs and sums are.
/// A plain value: it compares, prints and parses.
///
///     torch-fixed compute=bf16 fft=keep mm=fp32 mylib::attention=lower
///     torch compute=fp16 reduce=fp32 scope:blocks.*.filter=fp32 parameter:*.A_log=fp32
///     torch compute=fp16 bmm@blocks.*.attention=fp32
///
/// A key of `rules` is `aten::mm` for all overloads of an operation, `aten::softmax.int` for one,
/// `aten::mm.default` for the one without an overload name; a key with an overload goes first.
/// In-place and `out=` forms keep the caller's dtypes and cannot be listed.
///
/// `aten::mm@blocks.*.attention` is the operation in the scopes that the glob after `@` covers, and
/// goes before a key without. It is of that operation alone: what takes its rule from another, as
/// mantissa::rotary_attention does from linear, does not follow it. Of several the one with the
/// most characters that are no wildcards decides.
///
/// A key of `scopes` is a glob (base/glob.h) over paths of tensor::Scope, and holds for the scopes
/// inside one that it matches: the compute format there. Of several the one with the most
/// characters that are no wildcards decides.
///
/// A key of `parameters` is a glob over the names of parameters: the format in which such a
/// parameter is kept, whatever `param` says, and into which no rule casts it: an operation with it
/// runs in the wider of that and of what its rule says. Of several, as for scopes.
struct Policy {
  std::string base = "torch";                         // one of policy_names()
  numerics::Format compute = numerics::Format::bf16;  // fp32, tf32 (both cast to Float), bf16, fp16
  numerics::Format param = numerics::Format::fp32;    // of parameters: fp32, bf16, fp16
  std::optional<numerics::Format> output;             // of what a model returns; as it is
  std::set<Fix> fixes;                                // that are on
  std::map<std::string, Rule> rules;                  // over those of the base
  std::map<std::string, numerics::Format> scopes;     // over those of the base
  std::map<std::string, numerics::Format> parameters;  // over those of the base

  // clang-tidy takes the 0 that the compiler compares with for a pointer.
  auto operator<=>(const Policy&) const = default;  // NOLINT(modernize-use-nullptr)
};

struct PolicySummary {
  std::string name;
  std::string summary;  // half a line
};

/// What can be a base.
///   torch        the list of LibTorch's version for CUDA, used on every device: exact, faults too
///   torch-cpu    the list of LibTorch's version for CPU, likewise
///   torch-fixed  torch with every Fix on
///   lean         torch-fixed with 16-bit results of norms, softmax and embeddings
///   keras        mixed_bfloat16 and mixed_float16 of Keras 3
///   apex-o1, apex-o2, apex-o3
///   genomics     torch-fixed with implicit filters, positions and SSM parameters in FP32
///   fp32         no casts
MANTISSA_API std::vector<PolicySummary> shipped_policies();
MANTISSA_API std::vector<std::string> policy_names();

/// The text form, on one line; operations of ATen without their namespace. What is as in the base
/// is left out, but for the compute format.
MANTISSA_API std::string to_string(const Policy& policy);

/// Reads the text form: a base, then in any order `compute=FORMAT`, `param=FORMAT`,
/// `output=FORMAT`, a Fix with one of its words, `OPERATION=RULE`, `OPERATION@GLOB=RULE`,
/// `scope:GLOB=FORMAT` and `parameter:GLOB=FORMAT`.
/// An operation without a namespace is one of ATen; operations are looked up in LibTorch's
/// dispatcher, so a library's own must be loaded. All that is unknown, given twice or without an
/// effect throws InvalidArgument.
MANTISSA_API Policy parse_policy(std::string_view text);

/// The file form; all is optional:
///
///     base = "torch-fixed"
///     compute = "bf16"
///     param = "fp32"
///     output = "fp32"
///     reduce = "fp32"       # and the other switches
///     [rules]
///     "aten::mm" = "fp32"
///     "aten::bmm@blocks.*.attention" = "fp32"
///     [scopes]
///     "blocks.*.filter" = "fp32"
///     [parameters]
///     "*.A_log" = "fp32"
MANTISSA_API std::string to_toml(const Policy& policy);

/// Reads the file form. `where` names the file in messages, which add the line.
MANTISSA_API Policy parse_policy_toml(std::string_view toml, std::string_view where);

/// A policy from the command line or a run file: the path of a policy file when it contains a `/`
/// or ends in `.toml`, else the text form. Throws IoError when the file cannot be read.
MANTISSA_API Policy find_policy(const std::string& name_or_path);

/// The compute format of a scope path under `policy`.
MANTISSA_API numerics::Format compute_format(const Policy& policy, std::string_view scope);

/// The format in which `policy` keeps the parameter of that name.
MANTISSA_API numerics::Format parameter_format(const Policy& policy, std::string_view name);

/// Whether an entry for scopes of that glob holds in `scope`: in those that it matches and in all
/// inside them. None does outside of any scope.
MANTISSA_API bool covers(std::string_view glob, std::string_view scope);

/// Why an overload has its rule.
struct ResolvedRule {
  Rule rule = Rule::keep;
  std::string source;  // `torch 2.13 for CUDA`, `base lean`, `promote=all`, `mm=fp32`
};

/// Every overload that the policy gives a rule other than `keep` in `scope`, as the dispatcher
/// writes it: `aten::mm`, `aten::softmax.int`. Entries of a built-in list that this LibTorch lacks
/// are left out. Throws InvalidArgument as parse_policy does.
MANTISSA_API std::map<std::string, ResolvedRule> resolved_rules(const Policy& policy,
                                                                std::string_view scope = {});

/// The rule of one overload in the scopes that a glob covers.
struct ScopedRule {
  std::string glob;
  std::string operation;  // as in resolved_rules()
  ResolvedRule resolved;
};

/// Those of the keys with `@`; where several hold, the last decides. Throws as resolved_rules().
MANTISSA_API std::vector<ScopedRule> scoped_rules(const Policy& policy);

}  // namespace mantissa::amp
