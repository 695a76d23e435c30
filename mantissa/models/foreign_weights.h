#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "mantissa/base/api.h"
#include "mantissa/tensor/parameter_list.h"

namespace mantissa::models {

/// One parameter of ours in files of other programs. A `*` in `ours` is a number, and the same in
/// `theirs`: all names that it has in any such file. Those that a file has must be equal.
struct ForeignName {
  std::string_view ours;
  std::vector<std::string_view> theirs;
};

/// How other programs write the weights of one architecture.
struct ForeignNames {
  std::string_view format;  // for messages
  std::vector<ForeignName> parameters;
  std::vector<std::string_view> constants;  // globs of what is written and is no parameter
};

/// Of a HyenaDNA: the checkpoints of its authors on Hugging Face, and those of multimolecule. Both
/// were trained with a decay_shift of 0.05, and positions for two special tokens (hyena_size).
MANTISSA_API const ForeignNames& hyenadna_names();

/// Puts the tensors of such a file (tensor::read_safetensors) into a model's parameters, cast to
/// their dtype; dimensions of size 1 do not count. Throws InvalidArgument, before anything changes,
/// for a parameter that the file lacks or has in another shape, names of one parameter whose
/// tensors differ, and tensors that belong to nothing.
MANTISSA_API void load_foreign_weights(const tensor::ParameterList& parameters,
                                       const std::map<std::string, at::Tensor>& tensors,
                                       const ForeignNames& names);

/// The names in `theirs` of a parameter of ours, with its numbers. Throws InvalidArgument for one
/// that has none.
MANTISSA_API std::vector<std::string> foreign_names(const std::string& parameter,
                                                    const ForeignNames& names);

}  // namespace mantissa::models
