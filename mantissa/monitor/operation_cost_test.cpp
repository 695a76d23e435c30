#include "mantissa/monitor/operation_cost.h"

#include <vector>

#include <gtest/gtest.h>

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace mantissa::monitor {
namespace {

using Values = std::vector<c10::IValue>;

at::Tensor of(at::IntArrayRef shape, at::ScalarType dtype = at::kFloat) {
  return at::empty(shape, dtype);
}

c10::IValue ints(std::vector<int64_t> values) { return c10::IValue(values); }

c10::IValue bools(std::vector<bool> values) {
  c10::List<bool> list;
  for (const bool value : values) {
    list.push_back(value);
  }
  return {list};
}

TEST(OperationCost, OfProductsIsTwoForEachPairOfFactors) {
  const OperationCost mm = operation_cost("aten::mm", Values{of({8, 16}), of({16, 24})});
  EXPECT_EQ(mm.kind, OperationKind::product);
  EXPECT_EQ(mm.flops, 2 * 8 * 16 * 24);
  EXPECT_EQ(mm.factors, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(mm.is_aligned);
  EXPECT_EQ(operation_cost("aten::bmm", Values{of({5, 2, 3}), of({5, 3, 4})}).flops,
            2 * 5 * 2 * 3 * 4);
  const OperationCost addmm =
      operation_cost("aten::addmm", Values{of({4}), of({2, 3}), of({3, 4}), 1, 1});
  EXPECT_EQ(addmm.flops, 2 * 2 * 3 * 4);
  EXPECT_EQ(addmm.factors, (std::vector<size_t>{1, 2}));
  EXPECT_EQ(operation_cost("aten::mv", Values{of({2, 3}), of({3})}).flops, 2 * 2 * 3);
  EXPECT_EQ(operation_cost("aten::dot", Values{of({7}), of({7})}).flops, 2 * 7);
}

TEST(OperationCost, ASideThatIsNoMultipleOf8IsNotAligned) {
  for (const int64_t side : {0, 1, 2}) {
    int64_t sides[] = {8, 16, 24};
    sides[side] += 1;
    EXPECT_FALSE(
        operation_cost("aten::mm", Values{of({sides[0], sides[1]}), of({sides[1], sides[2]})})
            .is_aligned)
        << side;
  }
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
TEST(OperationCost, OfAConvolutionIsEachWeightOnceForEachPlaceOfTheOutput) {
  const auto cost = [](bool transposed, int64_t stride, int64_t padding, int64_t dilation) {
    return operation_cost("aten::convolution",
                          Values{of({2, 8, 20}), of({16, 8, 5}), c10::IValue(), ints({stride}),
                                 ints({padding}), ints({dilation}), transposed, ints({0}), 1});
  };
  EXPECT_EQ(cost(false, 1, 0, 1).flops, 2 * 2 * 16 * 16 * 8 * 5);  // 16 places
  EXPECT_EQ(cost(false, 2, 2, 1).flops, 2 * 2 * 10 * 16 * 8 * 5);
  EXPECT_EQ(cost(false, 1, 0, 2).flops, 2 * 2 * 12 * 16 * 8 * 5);
  EXPECT_EQ(cost(true, 3, 0, 1).flops, 2 * 2 * 20 * 16 * 8 * 5) << "the places of the input";
  EXPECT_TRUE(cost(false, 1, 0, 1).is_aligned);
  EXPECT_EQ(cost(false, 1, 0, 8).flops, 0) << "no place: its kernel refuses it";
  const OperationCost two = operation_cost(
      "aten::convolution", Values{of({1, 3, 9, 7}), of({4, 3, 3, 3}), c10::IValue(), ints({1, 1}),
                                  ints({1, 0}), ints({1, 1}), false, ints({0, 0}), 1});
  EXPECT_EQ(two.flops, 2 * (9 * 5) * 4 * 3 * 9);
  EXPECT_FALSE(two.is_aligned);
}

TEST(OperationCost, OfTheBackwardOfAConvolutionIsOneForEachGradient) {
  const auto cost = [](std::vector<bool> mask) {
    return operation_cost(
               "aten::convolution_backward",
               Values{of({2, 16, 16}), of({2, 8, 20}), of({16, 8, 5}), c10::IValue(), ints({1}),
                      ints({0}), ints({1}), false, ints({0}), 1, bools(std::move(mask))})
        .flops;
  };
  EXPECT_EQ(cost({true, true, true}), 2 * (2 * 2 * 16 * 16 * 8 * 5));
  EXPECT_EQ(cost({false, true, false}), 2 * 2 * 16 * 16 * 8 * 5);
}

TEST(OperationCost, OfAttentionIsTwoProductsForwardAndFiveBackward) {
  const at::Tensor query = of({2, 4, 16, 8});
  const at::Tensor key = of({2, 4, 32, 8});
  const double scores = 2 * 4 * 16 * 32;
  const std::string name = "aten::_scaled_dot_product_flash_attention_for_cpu";
  EXPECT_EQ(operation_cost(name, Values{query, key, key, 0.0, false}).flops, 2 * 2 * scores * 8);
  EXPECT_EQ(operation_cost(name, Values{query, key, key, 0.0, true}).flops, 2 * scores * 8)
      << "half of it is masked";
  const OperationCost backward =
      operation_cost(name + "_backward", Values{query, query, key, key, query, query, 0.0, false});
  EXPECT_EQ(backward.flops, 2 * 5 * scores * 8);
  EXPECT_EQ(backward.factors, (std::vector<size_t>{1, 2, 3}));
}

TEST(OperationCost, OfTheFusedLossIsOneProductForEachResultThatIsWanted) {
  const auto cost = [](std::vector<bool> wanted) {
    return operation_cost("mantissa::_linear_cross_entropy",
                          Values{of({64, 32}), of({16, 32}), c10::IValue(), of({64}, at::kLong), 1,
                                 -100, 0.0, bools(std::move(wanted))})
        .flops;
  };
  EXPECT_EQ(cost({false, false, false}), 2 * 64 * 32 * 16);
  EXPECT_EQ(cost({true, true, false}), 3 * 2 * 64 * 32 * 16);
}

TEST(OperationCost, ACastIsFromOneFloatingPointFormatToAnother) {
  const auto copied = [](at::ScalarType from, at::ScalarType to) {
    return operation_cost("aten::_to_copy",
                          Values{of({2}, from), static_cast<int64_t>(to), c10::IValue()})
        .kind;
  };
  EXPECT_EQ(copied(at::kFloat, at::kHalf), OperationKind::cast);
  EXPECT_EQ(copied(at::kBFloat16, at::kFloat), OperationKind::cast);
  EXPECT_EQ(copied(at::kFloat, at::kFloat), OperationKind::other);
  EXPECT_EQ(copied(at::kLong, at::kFloat), OperationKind::other);
  EXPECT_EQ(operation_cost("aten::copy_", Values{of({2}, at::kHalf), of({2}), false}).kind,
            OperationKind::cast);
  EXPECT_EQ(operation_cost("aten::copy_", Values{of({2}), of({2}), false}).kind,
            OperationKind::other);
  EXPECT_EQ(operation_cost("aten::copy_", Values{of({}, at::kHalf), of({}), false}).kind,
            OperationKind::other)
      << "one number is bookkeeping";
}

TEST(OperationCost, WhatIsUnknownOrCannotBeIsNoProduct) {
  EXPECT_EQ(operation_cost("aten::add", Values{of({2}), of({2}), 1}).kind, OperationKind::other);
  EXPECT_EQ(operation_cost("aten::linear", Values{of({2, 2}), of({2, 2})}).kind,
            OperationKind::other)
      << "it calls a product";
  EXPECT_EQ(operation_cost("mylib::mm", Values{of({2, 2}), of({2, 2})}).kind, OperationKind::other);
  EXPECT_EQ(operation_cost("aten::mm", Values{}).kind, OperationKind::other);
  EXPECT_EQ(operation_cost("aten::mm", Values{at::Tensor(), of({2, 2})}).kind,
            OperationKind::other);
}

TEST(TensorBytes, AreThoseOfTheTensorsAndNoMoreThanTheirMemory) {
  EXPECT_EQ(tensor_bytes(Values{of({2, 3}), of({4}, at::kHalf), 7, c10::IValue()}), 24 + 8);
  EXPECT_EQ(tensor_bytes(Values{of({1, 4}).expand({100, 4})}), 16);
  EXPECT_EQ(tensor_bytes(Values{std::vector<at::Tensor>{of({2}), of({3})}}), 20);
}

}  // namespace
}  // namespace mantissa::monitor
