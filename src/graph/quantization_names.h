// Names that the graph of a quantized net (nets/quantization) shares with the code that trains it.
#pragma once

namespace carole {

// A scalar input: the number of this training step, from 1 on. A variable of the same name keeps
// it. Both exist only if quantization begins after a delay.
inline constexpr const char* kQuantizationStep = "fake_quantization_step";

// A scalar input: the factor of the loss kL2Loss.
inline constexpr const char* kL2Weight = "l2_weight";

// A loss: half of the squared norm of all quantized weights that have L2 regularization
// (Variable::l2_in_graph), times kL2Weight.
inline constexpr const char* kL2Loss = "regularization_loss";

}  // namespace carole
