#include "mantissa/models/foreign_weights.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>

#include "mantissa/base/error.h"
#include "mantissa/base/glob.h"

namespace mantissa::models {
namespace {

// The numbers in `name` at the stars of `pattern`; nothing where it does not match.
std::optional<std::vector<std::string>> numbers_in(std::string_view pattern,
                                                   std::string_view name) {
  std::vector<std::string> numbers;
  size_t at = 0;
  for (const char c : pattern) {
    if (c != '*') {
      if (at == name.size() || name[at++] != c) {
        return std::nullopt;
      }
      continue;
    }
    const size_t begin = at;
    while (at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0) {
      ++at;
    }
    if (at == begin) {
      return std::nullopt;
    }
    numbers.emplace_back(name.substr(begin, at - begin));
  }
  return at == name.size() ? std::make_optional(numbers) : std::nullopt;
}

std::string filled(std::string_view pattern, const std::vector<std::string>& numbers) {
  std::string name;
  size_t next = 0;
  for (const char c : pattern) {
    if (c == '*') {
      name += numbers.at(next++);
    } else {
      name += c;
    }
  }
  return name;
}

// Without dimensions of size 1.
std::vector<int64_t> sizes_of(const at::Tensor& tensor) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  std::erase(sizes, 1);
  return sizes;
}

}  // namespace

std::vector<std::string> foreign_names(const std::string& parameter, const ForeignNames& names) {
  for (const ForeignName& row : names.parameters) {
    const auto numbers = numbers_in(row.ours, parameter);
    if (!numbers) {
      continue;
    }
    std::vector<std::string> result;
    for (const std::string_view theirs : row.theirs) {
      result.push_back(filled(theirs, *numbers));
    }
    return result;
  }
  throw InvalidArgument(concat("weights of ", names.format, ": the model's parameter \"", parameter,
                               "\" has no name there; load into a model as those have it"));
}

void load_foreign_weights(const tensor::ParameterList& parameters,
                          const std::map<std::string, at::Tensor>& tensors,
                          const ForeignNames& names) {
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // to, from
  std::set<std::string> used;
  for (const tensor::Parameter& parameter : parameters) {
    const std::vector<std::string> theirs = foreign_names(parameter.name, names);
    at::Tensor source;
    std::string source_name;
    for (const std::string& name : theirs) {
      const auto found = tensors.find(name);
      if (found == tensors.end()) {
        continue;
      }
      MANTISSA_CHECK(!source.defined() || at::equal(source, found->second), InvalidArgument,
                     "weights of ", names.format, ": ", name, " differs from ", source_name,
                     ", and both are ", parameter.name, "; these weights need another model");
      source = found->second;
      source_name = name;
      used.insert(name);
    }
    MANTISSA_CHECK(source.defined(), InvalidArgument, "weights of ", names.format, ": no ",
                   theirs.front(), ", which is ", parameter.name,
                   "; give a file with all weights of such a model");
    MANTISSA_CHECK(sizes_of(source) == sizes_of(parameter.value), InvalidArgument, "weights of ",
                   names.format, ": ", theirs.front(), " has shape ", source.sizes(),
                   ", the model's ", parameter.name, " ", parameter.value.sizes(),
                   "; make the model of that size");
    copies.emplace_back(parameter.value, source);
  }
  for (const auto& [name, tensor] : tensors) {
    const bool is_constant = std::any_of(
        names.constants.begin(), names.constants.end(),
        [name = std::string_view(name)](std::string_view glob) { return glob_match(glob, name); });
    MANTISSA_CHECK(is_constant || used.contains(name), InvalidArgument, "weights of ", names.format,
                   ": ", name,
                   " belongs to no parameter of the model; make the model of that size");
  }
  const at::NoGradGuard no_grad;
  for (const auto& [to, from] : copies) {
    to.copy_(from.view(to.sizes()));
  }
}

}  // namespace mantissa::models
