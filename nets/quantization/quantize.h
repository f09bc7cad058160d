// Quantization-aware training (Jacob et al. 2018): rewrites the graph of a net so that it computes
// with the rounding errors that 8-bit integers will have. Training then adapts the weights to these
// errors. TF-Slim's quantized training and evaluation do the same, with the same names.
//
// Two changes are made to the graph of a net and its losses, before it is fused or differentiated:
//   1. A batch norm that follows a layer is folded into its weights (folded_batch_norm.h).
//   2. Weights and activations pass through fake quantization (fake_quant.h). placement.h says
//      which ones.
//
// Variables. Fake quantization NAME owns NAME/min and NAME/max, and for activations in training
// NAME/NAME/min/biased, NAME/NAME/min/local_step and the same for max; the path is there twice. A
// delay adds kQuantizationStep. All are scalars, and none is a model variable.
//
// For training, the graph has the inputs kQuantizationStep and kL2Weight and the loss kL2Loss
// (src/graph/quantization_names.h). Weights with batch norm are not part of this loss: the
// optimizer decays them before they are folded, as always.
#pragma once

#include "nets/layers/model.h"

namespace carole::nets {

// Returns the model with quantization. Model::logits are what the net returned, without
// quantization. If the net's last operation is quantized, the loss reads the quantized values.
Model Quantize(Model model, const QuantizationOptions& options, bool training);

}  // namespace carole::nets
