// Convolutions with filters as long as the context, forward and backward: 64 channels, 131,072
// positions in all.
#include <ATen/ops/fft_irfft.h>
#include <ATen/ops/fft_rfft.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "mantissa/ops/long_convolution.h"
#include "mantissa/tensor/dtype.h"
#include "mantissa/tensor/memory.h"

namespace mantissa::bench {
namespace {

using numerics::Format;

constexpr int64_t kChannels = 64;
constexpr int64_t kPositions = 131072;

// As HyenaDNA has it: all FP32, the result in the format of x.
at::Tensor composed(const at::Tensor& x, const at::Tensor& filter, const at::Tensor& bias) {
  const int64_t length = x.size(-1);
  const int64_t size = 2 * length;
  const at::Tensor numbers = x.to(at::kFloat);
  const at::Tensor filter_spectrum = at::fft_rfft(filter, size).div(size);
  const at::Tensor spectrum = at::fft_rfft(numbers, size).mul(filter_spectrum);
  const at::Tensor out = at::fft_irfft(spectrum, size, -1, "forward").slice(-1, 0, length);
  return out.add(numbers.mul(bias.unsqueeze(-1))).to(x.scalar_type());
}

struct Problem {
  at::Tensor x, filter, bias, gradient;

  Problem(int64_t length, Format format) {
    const int64_t batch = kPositions / length;
    const at::ScalarType dtype = tensor::dtype_of(format);
    x = at::randn({batch, kChannels, length}).to(dtype).requires_grad_();
    filter = at::randn({kChannels, length}).div(length).requires_grad_();
    bias = at::randn({kChannels}).requires_grad_();
    gradient = at::randn({batch, kChannels, length}).to(dtype);
  }

  void run(bool ours) const {
    const at::Tensor out =
        ours ? ops::long_convolution(x, filter, bias) : composed(x, filter, bias);
    out.backward(gradient);
    for (const at::Tensor& leaf : {x, filter, bias}) {
      leaf.mutable_grad().reset();
    }
  }
};

Contest contest(int64_t length, Format format) {
  const Problem problem(length, format);
  return {[=] { problem.run(true); }, [=] { problem.run(false); }};
}

// At the peak, beyond what is there before and the gradients.
double extra_bytes(const Problem& problem, bool ours) {
  namespace memory = tensor::memory;
  const int64_t before = memory::live_bytes().total();
  memory::reset_peak();
  problem.run(ours);
  int64_t gradients = 0;
  for (const at::Tensor& leaf : {problem.x, problem.filter, problem.bias}) {
    gradients += static_cast<int64_t>(leaf.nbytes());
  }
  return static_cast<double>(memory::peak_bytes().total() - before - gradients);
}

std::vector<Figure> figures(const Setup&) {
  std::vector<Figure> all;
  for (const auto& [format, name] : {std::pair{Format::fp32, "FP32"}, {Format::bf16, "BF16"}}) {
    const std::string stem(numerics::to_string(format));
    const std::string what =
        std::string("long convolutions of ") + name +
        ", forward and backward, against LibTorch's rfft and irfft as HyenaDNA calls them";
    Figure time{.name = "long-convolution/time/" + stem, .meaning = what};
    Figure bytes{.name = "long-convolution/memory/" + stem,
                 .meaning = what + ": bytes beyond inputs and gradients"};
    time.rows.clear();
    bytes.rows.clear();
    time.rows.push_back({"", Summary::worst, {{1.5, 2.5}, {1.5, 2.5}}});
    bytes.rows.push_back({"", Summary::worst, {{2, 1 / 0.3}, {2, 1 / 0.3}}});
    for (const int64_t length : {16384, 65536, 131072}) {
      const std::string text = std::to_string(length);
      time.cases.push_back(timed(text, [=, format = format] { return contest(length, format); }));
      bytes.cases.push_back(counted(text, [=, format = format] {
        const Problem problem(length, format);
        return Bytes{extra_bytes(problem, true), extra_bytes(problem, false)};
      }));
    }
    all.push_back(std::move(time));
    all.push_back(std::move(bytes));
  }
  return all;
}

const Subject subject("long-convolution", figures);

}  // namespace
}  // namespace mantissa::bench
