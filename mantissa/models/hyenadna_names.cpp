#include "mantissa/models/foreign_weights.h"

namespace mantissa::models {
namespace {

// In checkpoints of multimolecule under `model.`, in those of HyenaDNA's authors under
// `hyena.backbone.`. One sine serves all layers of a filter's network there; multimolecule writes
// its frequency for each of them.
// NOLINTBEGIN(readability-function-size)
ForeignNames make_names() {
  return {
      "HyenaDNA",
      {{"embedding.weight",
        {"model.embeddings.word_embeddings.weight",
         "hyena.backbone.embeddings.word_embeddings.weight", "lm_head.weight"}},
       {"blocks.*.hyena_norm.weight",
        {"model.layers.*.norm1.weight", "hyena.backbone.layers.*.norm1.weight"}},
       {"blocks.*.hyena_norm.bias",
        {"model.layers.*.norm1.bias", "hyena.backbone.layers.*.norm1.bias"}},
       {"blocks.*.hyena.in.weight",
        {"model.layers.*.mixer.in_proj.weight", "hyena.backbone.layers.*.mixer.in_proj.weight"}},
       {"blocks.*.hyena.in.bias",
        {"model.layers.*.mixer.in_proj.bias", "hyena.backbone.layers.*.mixer.in_proj.bias"}},
       {"blocks.*.hyena.short.weight",
        {"model.layers.*.mixer.short_filter.weight",
         "hyena.backbone.layers.*.mixer.short_filter.weight"}},
       {"blocks.*.hyena.short.bias",
        {"model.layers.*.mixer.short_filter.bias",
         "hyena.backbone.layers.*.mixer.short_filter.bias"}},
       {"blocks.*.hyena.filter.layers.0.weight",
        {"model.layers.*.mixer.filter_fn.implicit_filter.0.weight",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.0.weight"}},
       {"blocks.*.hyena.filter.layers.0.bias",
        {"model.layers.*.mixer.filter_fn.implicit_filter.0.bias",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.0.bias"}},
       {"blocks.*.hyena.filter.layers.1.weight",
        {"model.layers.*.mixer.filter_fn.implicit_filter.2.weight",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.2.weight"}},
       {"blocks.*.hyena.filter.layers.1.bias",
        {"model.layers.*.mixer.filter_fn.implicit_filter.2.bias",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.2.bias"}},
       {"blocks.*.hyena.filter.layers.2.weight",
        {"model.layers.*.mixer.filter_fn.implicit_filter.4.weight",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.4.weight"}},
       {"blocks.*.hyena.filter.layers.2.bias",
        {"model.layers.*.mixer.filter_fn.implicit_filter.4.bias",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.4.bias"}},
       {"blocks.*.hyena.filter.last.weight",
        {"model.layers.*.mixer.filter_fn.implicit_filter.6.weight",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.6.weight"}},
       {"blocks.*.hyena.filter.frequency",
        {"model.layers.*.mixer.filter_fn.implicit_filter.1.freq",
         "model.layers.*.mixer.filter_fn.implicit_filter.3.freq",
         "model.layers.*.mixer.filter_fn.implicit_filter.5.freq",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.1.freq",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.3.freq",
         "hyena.backbone.layers.*.mixer.filter_fn.implicit_filter.5.freq"}},
       {"blocks.*.hyena.filter.bias",
        {"model.layers.*.mixer.filter_fn.bias", "hyena.backbone.layers.*.mixer.filter_fn.bias"}},
       {"blocks.*.hyena.out.weight",
        {"model.layers.*.mixer.out_proj.weight", "hyena.backbone.layers.*.mixer.out_proj.weight"}},
       {"blocks.*.hyena.out.bias",
        {"model.layers.*.mixer.out_proj.bias", "hyena.backbone.layers.*.mixer.out_proj.bias"}},
       {"blocks.*.mlp_norm.weight",
        {"model.layers.*.norm2.weight", "hyena.backbone.layers.*.norm2.weight"}},
       {"blocks.*.mlp_norm.bias",
        {"model.layers.*.norm2.bias", "hyena.backbone.layers.*.norm2.bias"}},
       {"blocks.*.mlp.up.weight",
        {"model.layers.*.mlp.fc1.weight", "hyena.backbone.layers.*.mlp.fc1.weight"}},
       {"blocks.*.mlp.up.bias",
        {"model.layers.*.mlp.fc1.bias", "hyena.backbone.layers.*.mlp.fc1.bias"}},
       {"blocks.*.mlp.down.weight",
        {"model.layers.*.mlp.fc2.weight", "hyena.backbone.layers.*.mlp.fc2.weight"}},
       {"blocks.*.mlp.down.bias",
        {"model.layers.*.mlp.fc2.bias", "hyena.backbone.layers.*.mlp.fc2.bias"}},
       {"final_norm.weight", {"model.final_layer_norm.weight", "hyena.backbone.ln_f.weight"}},
       {"final_norm.bias", {"model.final_layer_norm.bias", "hyena.backbone.ln_f.bias"}}},
      {"*.pos_emb.z", "*.pos_emb.t", "*.modulation.deltas"}};
}
// NOLINTEND(readability-function-size)

}  // namespace

const ForeignNames& hyenadna_names() {
  static const ForeignNames names = make_names();
  return names;
}

}  // namespace mantissa::models
