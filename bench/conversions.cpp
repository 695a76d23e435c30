// Conversions between FP32 and 16 bits on one thread, against LibTorch's copy.
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>

#include "bench/row.h"
#include "mantissa/base/error.h"
#include "mantissa/numerics/convert.h"
#include "mantissa/tensor/dtype.h"

namespace mantissa::bench {
namespace {

using numerics::Format;
using numerics::Rounding;

constexpr int64_t kElements = 1 << 20;
constexpr double kBytes = kElements * 6.0;  // 4 of FP32, 2 of the narrow format

// Our conversions are of one thread, so LibTorch's must be too.
Action on_one_thread(Action action) {
  return [action = std::move(action)] {
    const int threads = at::get_num_threads();
    at::set_num_threads(1);
    action();
    at::set_num_threads(threads);
  };
}

Contest encode(Format format, Rounding rounding) {
  const at::Tensor wide = at::randn({kElements});
  const at::Tensor narrow = at::empty({kElements}, tensor::dtype_of(format));
  auto patterns = std::make_shared<std::vector<uint16_t>>(kElements);
  const auto ours = [=] {
    numerics::encode(format, {wide.const_data_ptr<float>(), size_t{kElements}},
                     std::span<uint16_t>(*patterns), {.rounding = rounding});
  };
  return {on_one_thread(ours), on_one_thread([=] { narrow.copy_(wide); })};
}

Contest decode(Format format) {
  const at::Tensor narrow = at::randn({kElements}).to(tensor::dtype_of(format));
  const at::Tensor wide = at::empty({kElements}, at::kFloat);
  const auto ours = [=] {
    numerics::decode(format,
                     {static_cast<const uint16_t*>(narrow.const_data_ptr()), size_t{kElements}},
                     {wide.mutable_data_ptr<float>(), size_t{kElements}});
  };
  return {on_one_thread(ours), on_one_thread([=] { wide.copy_(narrow); })};
}

Figure figure(const std::string& name, const std::string& meaning,
              const std::function<Contest()>& make) {
  return {.name = "conversions/" + name,
          .meaning = meaning + " against copy_ of LibTorch; one thread, 2^20 numbers",
          .cases = {timed(name, make, kBytes, "B")},
          .share = 0.1};
}

std::vector<Figure> figures(const Setup&) {
  std::vector<Figure> all;
  for (const Format format : {Format::bf16, Format::fp16}) {
    const std::string name(numerics::to_string(format));
    all.push_back(figure(concat("to-", name), concat("FP32 to ", name),
                         [=] { return encode(format, Rounding::nearest_even); }));
    all.push_back(
        figure(concat("from-", name), concat(name, " to FP32"), [=] { return decode(format); }));
  }
  all.push_back(figure("to-bf16-stochastic",
                       "FP32 to bf16 by stochastic rounding, which LibTorch lacks,",
                       [] { return encode(Format::bf16, Rounding::stochastic); }));
  return all;
}

const Subject subject("conversions", figures);

}  // namespace
}  // namespace mantissa::bench
