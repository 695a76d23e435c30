#include "mantissa/ops/embedding.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "mantissa/base/error.h"
#include "mantissa/ops/cpu/norm_kernel.h"
#include "mantissa/ops/parallel.h"
#include "mantissa/ops/tensor_blocks.h"
#include "mantissa/tensor/dtype.h"

// Shapes: V rows of D numbers in the table, N positions.
namespace mantissa::ops {
namespace {

using at::ScalarType;
using at::Tensor;

void check(const Tensor& table, const Tensor& indices, int64_t padding_idx,
           std::optional<ScalarType> dtype) {
  MANTISSA_CHECK(table.dim() == 2, InvalidArgument, "embedding: table has shape ", table.sizes(),
                 "; pass (rows, numbers a row)");
  MANTISSA_CHECK(tensor::is_training_dtype(table.scalar_type()), InvalidArgument,
                 "embedding: table is ", table.scalar_type(),
                 "; pass Float, BFloat16, Half or Double");
  MANTISSA_CHECK(indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt,
                 InvalidArgument, "embedding: indices are ", indices.scalar_type(),
                 "; pass Long or Int");
  MANTISSA_CHECK(padding_idx >= -1 && padding_idx < table.size(0), InvalidArgument,
                 "embedding: padding_idx is ", padding_idx, " for a table of ", table.size(0),
                 " rows; pass one of them, or -1");
  MANTISSA_CHECK(!dtype || tensor::is_training_dtype(*dtype), InvalidArgument,
                 "embedding: dtype is ", *dtype, "; pass Float, BFloat16, Half or Double");
}

// int64 and contiguous, all in the table.
Tensor checked_indices(const Tensor& indices_in, int64_t rows) {
  Tensor indices = indices_in.to(at::kLong).contiguous();
  const auto* index = indices.const_data_ptr<int64_t>();
  const auto* end = index + indices.numel();
  const auto* outside = std::find_if(index, end, [rows](int64_t i) { return i < 0 || i >= rows; });
  if (outside == end) {
    return indices;
  }
  std::vector<int64_t> position(static_cast<size_t>(indices.dim()));
  int64_t rest = outside - index;
  for (int64_t axis = indices.dim() - 1; axis >= 0; --axis) {
    position[static_cast<size_t>(axis)] = rest % indices.size(axis);
    rest /= indices.size(axis);
  }
  throw InvalidArgument(concat("embedding: index ", *outside, " at position ",
                               at::IntArrayRef(position), " is outside of a table of ", rows,
                               " rows; pass 0 to ", rows - 1));
}

struct Workspace {
  Scratch numbers, sum;
};

Workspace& workspace() {
  static thread_local Workspace instance;
  return instance;
}

std::vector<int64_t> shape_of_result(const Tensor& table, const Tensor& indices) {
  std::vector<int64_t> shape = indices.sizes().vec();
  shape.push_back(table.size(1));
  return shape;
}

Tensor gather(const Tensor& table_in, const Tensor& indices, ScalarType dtype) {
  const Tensor table = table_in.contiguous();
  Tensor out = at::empty(shape_of_result(table, indices), table.options().dtype(dtype));
  const int64_t width = table.size(1);
  const auto* index = indices.const_data_ptr<int64_t>();
  if (out.numel() == 0) {
    return out;
  }
  const TensorBlocks rows(table);
  const auto* from = static_cast<const char*>(table.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  const int64_t row_bytes = width * static_cast<int64_t>(table.element_size());
  constexpr int64_t kGrain = 64;
  parallel_for(0, indices.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (table.scalar_type() == dtype) {
        std::memcpy(to + i * row_bytes, from + index[i] * row_bytes,
                    static_cast<size_t>(row_bytes));
      } else {
        const float* row = rows.read(index[i] * width, width, workspace().numbers);
        cpu::narrow(row, to, dtype, i * width, width);
      }
    }
  });
  return out;
}

/// Where each row of the table was read. A row that was read often is cut into pieces, which depend
/// on the indices alone.
class Uses {
 public:
  static constexpr int64_t kPiece = 256;  // positions

  struct Piece {
    int64_t begin;  // in positions()
    int64_t end;
  };

  Uses(const Tensor& indices, int64_t rows, int64_t padding_idx)
      : begins_(static_cast<size_t>(rows) + 1) {
    const auto* index = indices.const_data_ptr<int64_t>();
    const auto begin_of = [this](int64_t row) -> int64_t& {
      return begins_[static_cast<size_t>(row)];
    };
    const int64_t count = indices.numel();
    for (int64_t i = 0; i < count; ++i) {
      begin_of(index[i]) += index[i] == padding_idx ? 0 : 1;
    }
    std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
    positions_.resize(static_cast<size_t>(begins_.back()));
    for (int64_t i = count - 1; i >= 0; --i) {  // from the end of each row to its begin
      if (index[i] != padding_idx) {
        positions_[static_cast<size_t>(--begin_of(index[i]))] = i;
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      const auto [begin, end] = of_row(row);
      if (end - begin > kPiece) {
        long_rows_.push_back({row, static_cast<int64_t>(pieces_.size())});
        for (int64_t at = begin; at < end; at += kPiece) {
          pieces_.push_back({at, std::min(at + kPiece, end)});
        }
      }
    }
  }

  const int64_t* positions() const { return positions_.data(); }

  Piece of_row(int64_t row) const {
    const auto i = static_cast<size_t>(row);
    return {begins_[i], begins_[i + 1]};
  }

  /// The first row from `row` on that was read, or the number of rows.
  int64_t next_used(int64_t row) const {
    const auto begin = begins_.begin() + row;
    const auto above = std::find_if(begin, begins_.end(), [=](int64_t at) { return at > *begin; });
    return above == begins_.end() ? static_cast<int64_t>(begins_.size()) - 1
                                  : above - begins_.begin() - 1;
  }

  /// Those of all rows with more positions than a piece has, row by row.
  const std::vector<Piece>& pieces() const { return pieces_; }

  /// Of such a row.
  int64_t first_piece(int64_t row) const {
    return std::lower_bound(long_rows_.begin(), long_rows_.end(), std::pair(row, int64_t{0}))
        ->second;
  }

 private:
  std::vector<int64_t> begins_;  // of each row in positions_
  std::vector<int64_t> positions_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<int64_t, int64_t>> long_rows_;  // row, first piece
};

// The gradient of the table, from those of the result.
Tensor scatter(const Tensor& grad_out_in, const Tensor& indices, int64_t rows, int64_t padding_idx,
               ScalarType dtype) {
  const Tensor grad_out = grad_out_in.contiguous();
  const int64_t width = grad_out.size(-1);
  const Uses uses(indices, rows, padding_idx);
  const TensorBlocks gradients(grad_out);
  const auto add_up = [&](Uses::Piece piece, float* sum) {
    std::fill_n(sum, width, 0.0F);
    for (int64_t i = piece.begin; i < piece.end; ++i) {
      cpu::add(sum, gradients.read(uses.positions()[i] * width, width, workspace().numbers), width,
               sum);
    }
  };
  const auto pieces = static_cast<int64_t>(uses.pieces().size());
  const auto options = grad_out.options();
  const Tensor parts = at::empty({pieces, width}, options.dtype(at::kFloat));
  auto* part = parts.mutable_data_ptr<float>();
  parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      add_up(uses.pieces()[static_cast<size_t>(i)], part + i * width);
    }
  });
  Tensor result = at::empty({rows, width}, options.dtype(dtype));
  if (result.numel() == 0) {
    return result;
  }
  const TensorBlocks results(result);
  auto* bytes = static_cast<char*>(result.mutable_data_ptr());
  const int64_t row_bytes = width * static_cast<int64_t>(result.element_size());
  constexpr int64_t kGrain = 16;
  parallel_for(0, rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      const int64_t used = std::min(end, uses.next_used(row));
      std::memset(bytes + row * row_bytes, 0, static_cast<size_t>((used - row) * row_bytes));
      if (used == end) {
        return;
      }
      float* sum = results.place(used * width, width, workspace().sum);
      const auto [first, last] = uses.of_row(used);
      if (last - first <= Uses::kPiece) {
        add_up({first, last}, sum);
      } else {
        const float* next = part + uses.first_piece(used) * width;
        std::copy_n(next, width, sum);
        for (int64_t at = first + Uses::kPiece; at < last; at += Uses::kPiece) {
          next += width;
          cpu::add(sum, next, width, sum);
        }
      }
      results.store(used * width, width, sum);
      row = used + 1;
    }
  });
  return result;
}

bool has_kernel(const Tensor& table, const Tensor& indices, ScalarType dtype) {
  return table.is_cpu() && indices.is_cpu() && table.scalar_type() != at::kDouble &&
         dtype != at::kDouble;
}

ScalarType result_dtype(const Tensor& table, std::optional<ScalarType> dtype) {
  return dtype.value_or(table.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

// As ATen operations: the gradients add up in FP32, or FP64.
Tensor composed(const Tensor& table, const Tensor& indices, int64_t padding_idx, ScalarType dtype) {
  const bool wide = table.scalar_type() == at::kDouble || dtype == at::kDouble;
  return at::embedding(table.to(wide ? at::kDouble : at::kFloat), indices, padding_idx).to(dtype);
}

// Arguments (table, indices, padding_idx, dtype).
struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& table,
                        const Tensor& indices_in, int64_t padding_idx, ScalarType dtype) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor indices = checked_indices(indices_in, table.size(0));
    context->save_for_backward({indices});
    context->saved_data["rows"] = table.size(0);
    context->saved_data["padding_idx"] = padding_idx;
    context->saved_data["dtype"] = static_cast<int64_t>(table.scalar_type());
    return gather(table, indices, dtype);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    MANTISSA_CHECK(!at::GradMode::is_enabled(), Unsupported,
                   "embedding: its gradients are to be differentiated, which is not supported; use "
                   "at::embedding there");
    auto& saved = context->saved_data;
    return {scatter(gradients[0], context->get_saved_variables()[0], saved["rows"].toInt(),
                    saved["padding_idx"].toInt(), static_cast<ScalarType>(saved["dtype"].toInt())),
            Tensor(), Tensor(), Tensor()};
  }
};

template <bool kAutograd>
Tensor embedding_kernel(const Tensor& table, const Tensor& indices, int64_t padding_idx,
                        std::optional<ScalarType> dtype_in) {
  check(table, indices, padding_idx, dtype_in);
  const ScalarType dtype = result_dtype(table, dtype_in);
  if (!has_kernel(table, indices, dtype)) {
    return composed(table, indices, padding_idx, dtype);
  }
  if constexpr (kAutograd) {
    return EmbeddingFunction::apply(table, indices, padding_idx, dtype);
  } else {
    return gather(table, checked_indices(indices, table.size(0)), dtype);
  }
}

TORCH_LIBRARY_FRAGMENT(mantissa, library) {
  library.def(
      "embedding(Tensor table, Tensor indices, int padding_idx=-1, *, ScalarType? dtype=None) -> "
      "Tensor");
}

TORCH_LIBRARY_IMPL(mantissa, CompositeExplicitAutograd, library) {
  library.impl("embedding", &embedding_kernel<false>);
}

TORCH_LIBRARY_IMPL(mantissa, Autograd, library) {
  library.impl("embedding", &embedding_kernel<true>);
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& indices, int64_t padding_idx,
                 std::optional<ScalarType> dtype) {
  static const auto operation = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mantissa::embedding", "")
                                    .typed<decltype(embedding_kernel<false>)>();
  return operation.call(table, indices, padding_idx, dtype);
}

}  // namespace mantissa::ops
