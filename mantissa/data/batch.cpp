#include "mantissa/data/batch.h"

#include <cstring>

#include <ATen/ops/empty.h>

#include "mantissa/base/error.h"

namespace mantissa::data {
namespace {

at::Tensor to_tensor(const std::vector<int64_t>& values, int64_t rows) {
  const auto size = static_cast<int64_t>(values.size());
  at::Tensor tensor = at::empty({rows, size / rows}, at::kLong);
  std::memcpy(tensor.mutable_data_ptr<int64_t>(), values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

}  // namespace

BatchBuffer fill_buffer(const Dataset& dataset, const std::vector<Sample>& samples) {
  const auto context = static_cast<size_t>(dataset.context());
  BatchBuffer buffer;
  buffer.tokens.resize(samples.size() * context);
  buffer.targets.resize(samples.size() * context);
  for (size_t row = 0; row < samples.size(); ++row) {
    buffer.positions.push_back(
        dataset.fill(samples[row], std::span(buffer.tokens).subspan(row * context, context),
                     std::span(buffer.targets).subspan(row * context, context)));
  }
  return buffer;
}

Batch make_batch(BatchBuffer buffer, uint64_t index) {
  const auto rows = static_cast<int64_t>(buffer.positions.size());
  MANTISSA_ASSERT(rows > 0);
  return {to_tensor(buffer.tokens, rows), to_tensor(buffer.targets, rows), index,
          std::move(buffer.positions)};
}

}  // namespace mantissa::data
