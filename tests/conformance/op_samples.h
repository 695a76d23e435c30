#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>

namespace mantissa::conformance {

/// A call of one overload of ATen, out of the sample inputs that PyTorch tests itself with.
struct SampleCall {
  std::string operation;  // `conv2d.padding`
  c10::OperatorHandle handle;
  nlohmann::json arguments;  // by name, in the form of tools/export_op_samples
};

/// Whether LibTorch gives the same bits for the same call. Not so the default algorithm of
/// linalg_lstsq, whose last bits differ from call to call.
bool repeats(const SampleCall& call);

/// The dtype of the n-th floating-point tensor of a call.
using Dtypes = std::function<at::ScalarType(int64_t n)>;

class OpSamples {
 public:
  /// Reads tests/conformance/op_samples. Calls that this LibTorch has no overload or no argument
  /// for are left out.
  OpSamples();

  const std::vector<SampleCall>& calls() const { return calls_; }

  /// Of torch, that exported the samples: `2.13.0`.
  const std::string& version() const { return version_; }

  /// Operations of autocast's list for CPU that PyTorch has no sample for.
  const std::vector<std::string>& missing() const { return missing_; }

  /// Arguments in the order of the schema, with new leaves for tensors. Those that PyTorch
  /// differentiates by require a gradient.
  std::vector<c10::IValue> arguments(const SampleCall& call, const Dtypes& dtypes) const;

  int64_t floating_tensors(const SampleCall& call) const;

 private:
  std::vector<SampleCall> calls_;
  std::string version_;
  std::vector<std::string> missing_;
  std::map<std::string, at::Tensor> tensors_;
};

struct Outcome {
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> gradients;  // of each argument that requires one
  std::string error;                  // of forward or backward; empty when both ran
};

/// Calls an operation with random numbers of a fixed seed; its results are all tensors it returns.
/// Throws what the operation throws.
std::vector<at::Tensor> call(const c10::OperatorHandle& handle,
                             const std::vector<c10::IValue>& arguments);

/// The gradients of the sum of squares of `results`, by the arguments that require one.
std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& results,
                                  const std::vector<c10::IValue>& arguments);

/// call() in a region that `Region(options...)` opens, then gradients() outside of it.
template <typename Region, typename... Options>
Outcome run(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& arguments,
            const Options&... options) {
  Outcome outcome;
  try {
    {
      [[maybe_unused]] const Region region(options...);
      outcome.results = call(handle, arguments);
    }
    outcome.gradients = gradients(outcome.results, arguments);
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

/// Same shape, dtype and bits; a NaN equals every NaN. Undefined tensors are equal.
bool same_bits(const at::Tensor& a, const at::Tensor& b);
bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

/// Warnings of deprecated operations are not what these tests are about.
class Silence : public c10::WarningHandler {
 public:
  void process(const c10::Warning& /*warning*/) override {}
};

}  // namespace mantissa::conformance
