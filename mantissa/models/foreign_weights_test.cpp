#include "mantissa/models/foreign_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "mantissa/base/error.h"
#include "mantissa/base/message_of.h"
#include "mantissa/models/hyena.h"

namespace mantissa::models {
namespace {

using Tensors = std::map<std::string, at::Tensor>;

HyenaOptions tiny() {
  return {.vocabulary = 8, .layers = 11, .width = 4, .filter = {.positions = 20, .width = 6}};
}

// As a file of either program has the weights of a model of ours.
Tensors foreign(const Hyena& model, bool multimolecule) {
  Tensors tensors = {{multimolecule ? "model.layers.0.mixer.filter_fn.pos_emb.z"
                                    : "hyena.backbone.layers.0.mixer.filter_fn.pos_emb.z",
                      at::ones({1, 20, 5})}};
  for (const tensor::Parameter& parameter : model.parameters()) {
    for (const std::string& name : foreign_names(parameter.name, hyenadna_names())) {
      const bool is_later_sine = name.ends_with(".3.freq") || name.ends_with(".5.freq");
      if (name.starts_with("model.") == multimolecule && (multimolecule || !is_later_sine)) {
        const at::Tensor value = parameter.value.detach();
        tensors[name] = name.ends_with("freq") ? value.unsqueeze(0) : value.clone();
      }
    }
  }
  return tensors;
}

TEST(ForeignWeights, ThoseOfBothProgramsLoad) {
  for (const bool multimolecule : {true, false}) {
    const Hyena source(tiny(), 1);
    const Hyena model(tiny(), 2);
    load_foreign_weights(model.parameters(), foreign(source, multimolecule), hyenadna_names());
    for (size_t i = 0; i < source.parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(model.parameters()[i].value, source.parameters()[i].value))
          << source.parameters()[i].name;
    }
  }
}

TEST(ForeignWeights, NamesKeepTheirNumbers) {
  EXPECT_EQ(foreign_names("blocks.10.mlp.up.bias", hyenadna_names()).front(),
            "model.layers.10.mlp.fc1.bias");
  EXPECT_EQ(message_of<InvalidArgument>(
                [] { (void)foreign_names("blocks.x.mlp.up.bias", hyenadna_names()); }),
            "weights of HyenaDNA: the model's parameter \"blocks.x.mlp.up.bias\" has no name "
            "there; load into a model as those have it");
}

TEST(ForeignWeights, WhatDoesNotFitIsRefusedBeforeAnythingChanges) {
  const Hyena source(tiny(), 1);
  const Hyena model(tiny(), 2);
  const at::Tensor before = model.parameters()[0].value.detach().clone();
  const auto message = [&](const Tensors& tensors) {
    return message_of<InvalidArgument>(
        [&] { load_foreign_weights(model.parameters(), tensors, hyenadna_names()); });
  };
  Tensors tensors = foreign(source, true);
  tensors.erase("model.layers.3.norm1.bias");
  EXPECT_EQ(message(tensors),
            "weights of HyenaDNA: no model.layers.3.norm1.bias, which is blocks.3.hyena_norm.bias; "
            "give a file with all weights of such a model");
  tensors = foreign(source, true);
  tensors["model.final_layer_norm.bias"] = at::ones({5});
  EXPECT_EQ(message(tensors),
            "weights of HyenaDNA: model.final_layer_norm.bias has shape [5], the model's "
            "final_norm.bias [4]; make the model of that size");
  tensors = foreign(source, true);
  tensors["model.layers.11.norm1.bias"] = at::ones({4});
  EXPECT_EQ(message(tensors),
            "weights of HyenaDNA: model.layers.11.norm1.bias belongs to no parameter of the model; "
            "make the model of that size");
  tensors = foreign(source, true);
  tensors["model.layers.0.mixer.filter_fn.implicit_filter.3.freq"] = at::ones({1, 6});
  EXPECT_EQ(message(tensors),
            "weights of HyenaDNA: model.layers.0.mixer.filter_fn.implicit_filter.3.freq differs "
            "from model.layers.0.mixer.filter_fn.implicit_filter.1.freq, and both are "
            "blocks.0.hyena.filter.frequency; these weights need another model");
  EXPECT_TRUE(at::equal(model.parameters()[0].value, before));
}

}  // namespace
}  // namespace mantissa::models
