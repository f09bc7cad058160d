// Decides where fake quantization goes, and which name it gets.
//
// TensorFlow's rewriter looks for a layer (convolution or fully connected) and for what follows its
// bias or batch norm. In this table, C is the name of the layer's operation, and PARENT is C
// without its last part:
//
//   layer -> ReLU                     C/weights_quant; C/act_quant after the ReLU
//   layer -> anything else            C/weights_quant; C/act_quant after the layer
//   layer -> add -> ReLU              C/weights_quant; C/conv_quant after the layer,
//                                     PARENT/act_quant after the ReLU. This layer makes the
//                                     first summand, or the second one if no layer makes the
//                                     first. The layer of the other summand gets C/act_quant.
//   layer -> hard swish, sigmoid      the same, because relu6(x + 3) is an add and a ReLU
//   depthwise -> pointwise            C of the depthwise layer ends in /separable_conv2d. Its
//                                     C/act_quant comes after this layer.
//   any other add or multiplication   NODE/activation_AddV2_quant or NODE/activation_Mul_quant,
//   that no ReLU follows              if an input is quantized. Reshapes and max pools between
//                                     the two do not matter.
//   add after a linear layer of a     SCOPE/post_activation_bypass_quant
//   MobileNet block
//
// The input of the net is not quantized. Neither are the results of pools, concatenations and
// softmax.
#pragma once

#include <map>
#include <set>
#include <string>

#include "src/graph/graph.h"

namespace carole::nets {

// The names of fake quantization. The keys are nodes and values of the unquantized graph.
struct Placement {
  std::map<NodeId, std::string> weights;  // by layer
  std::map<ValueId, std::string> values;
  // By hard activation: the name for relu6(x + 3), which is a part of it. The products of these
  // activations are quantized as well.
  std::map<NodeId, std::string> shifted_relus;
  std::map<NodeId, NodeId> folded;  // layer -> the batch norm that is folded into it
  std::set<NodeId> folded_norms;    // the batch norms of `folded`
  // Values that are results of reshapes, max pools, adds or products of quantized values.
  std::set<ValueId> reached;

  // Whether the value is quantized, or is the result of such an operation.
  bool IsQuantized(ValueId id) const { return values.contains(id) || reached.contains(id); }
};

// Analyzes the graph of a net, which must not be fused.
Placement PlaceQuantization(const Graph& graph);

// Returns the name that TensorFlow gives to the operations of a scope. Some nets of TF-Slim have a
// separate function for their base, which enters the scope of the net again. This changes the
// names of operations, but not those of variables: "InceptionV1/Mixed_3b" becomes
// "InceptionV1/InceptionV1/Mixed_3b". A name that begins with the scope twice is returned as it is.
std::string OperationName(const std::string& scope);

}  // namespace carole::nets
