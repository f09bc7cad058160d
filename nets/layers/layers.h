// The layers that nets consist of, as TF-Slim defines them. A layer enters a scope of its name,
// adds its variables there, and appends its operations to the graph. LayerOptions has the settings
// that a TF-Slim net sets by arg_scope: a net makes one, and copies and changes it where layers
// differ.
//
// Activations have the shape (N,C,H,W) or (N,C). `window` is the size of a convolution's filter or
// of a pooling window (kernel_size in TF-Slim). `outputs` is the number of output channels.
//
// Throws UsageError with the path of the layer if an image is too small for a window.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "nets/layers/builder.h"
#include "src/backend/ops/window.h"

namespace carole::nets {

// The moving statistics are updated as moving = decay * moving + (1 - decay) * batch.
// ModelOptions::batch_norm_decay wins over decay.
struct BatchNormOptions {
  double decay = 0.999;
  double epsilon = 0.001;
  bool gamma = false;  // whether there is a factor; if not, it is 1
  bool l2 = false;     // L2 regularization of gamma and beta
  // Whether epsilon is at least 1.001e-5, as in TensorFlow's fused kernel.
  bool raise_epsilon = true;
};

enum class Activation : uint8_t { kNone, kRelu, kRelu6, kHardSwish, kHardSigmoid };

// The settings of a layer with weights.
struct LayerOptions {
  Initializer weights = Initializer::XavierUniform();
  Initializer biases = Initializer::Constant(0);
  bool l2_weights = false;
  bool l2_biases = false;
  bool has_biases = true;
  const char* weights_name = "weights";        // "kernel" in Keras
  const char* biases_name = "biases";          // "bias" in Keras
  std::optional<BatchNormOptions> batch_norm;  // if set, the layer has no biases
  Activation activation = Activation::kRelu;
  bool exact = false;  // see Conv2dAttributes::exact

  // Returns these options without batch norm and activation, for layers such as logits. As batch
  // norm is gone, the layer has biases (if has_biases is true).
  LayerOptions Linear() const;
};

// The kinds of padding, for an image of n pixels and a window of w:
//   kSame   so much that the output has ceil(n / stride) pixels
//   kValid  none
//   kFixed  w - 1 pixels, independent of n (the strided convolutions of ResNet)
// If the number of pixels is odd, the bottom and the right side get one more than the top and left.
enum class Pad : uint8_t { kSame, kValid, kFixed };

struct Window {
  int64_t h, w;
  Window(int64_t size) : h(size), w(size) {}  // NOLINT: 3 means 3x3
  Window(int64_t height, int64_t width) : h(height), w(width) {}
};

// Returns the padding for an image (N,C,H,W).
Padding PaddingOf(const Shape& image, Pad pad, Window window, int64_t stride);

struct ConvGeometry {
  int64_t outputs;
  Window window;
  int64_t stride = 1;
  Pad pad = Pad::kSame;
};

// Convolution, then bias or batch norm, then activation: x (N,C,H,W) -> (N,outputs,P,Q).
// Variables: NAME/weights (R,S,C,K), then NAME/biases (K) or NAME/BatchNorm/...
ValueId Conv2d(NetBuilder& b, ValueId x, std::string_view name, const ConvGeometry& geometry,
               const LayerOptions& options);

struct SeparableGeometry {
  int64_t outputs;  // of the pointwise convolution; 0: there is only the depthwise one
  Window window;    // of the depthwise convolution
  int64_t stride = 1;
  Pad pad = Pad::kSame;
  int64_t multiplier = 1;  // depthwise output channels for each input channel
};

// A depthwise convolution, directly followed by a pointwise (1x1) one, then bias or batch norm,
// then activation: x (N,C,H,W) -> (N,outputs,P,Q), or (N,C*M,P,Q) without the pointwise one.
// Variables: NAME/depthwise_weights (R,S,C,M) with M = multiplier, NAME/pointwise_weights
// (1,1,C*M,K), then as for Conv2d. options.l2_weights applies to both weights.
ValueId SeparableConv2d(NetBuilder& b, ValueId x, std::string_view name,
                        const SeparableGeometry& geometry, const LayerOptions& options);

// Returns `value` rounded to a multiple of 8; the result is at least 8 and at least 0.9 * value.
// MobileNets round their numbers of channels in this way.
int64_t MakeDivisible(double value);

// Squeeze-and-excitation (Hu et al. 2018): multiplies each channel of x (N,C,H,W) by a gate. The
// gates are computed from the mean over the pixels: NAME/Conv (1x1, ReLU) reduces it to
// MakeDivisible(C/4) channels, NAME/Conv_1 (1x1, hard sigmoid) expands it to C again. Weights,
// biases and regularization are those of `layer`.
ValueId SqueezeExcite(NetBuilder& b, ValueId x, std::string_view name, const LayerOptions& layer);

// An inverted residual block (Sandler et al. 2018) consists of three convolutions:
//   NAME/expand     1x1, to `expansion` channels; left out if x has that many
//   NAME/depthwise  with the window and the stride
//   NAME/project    1x1, to `outputs` channels, without activation
// In a fused block (Gupta & Akin 2020), NAME/expand has the window and the stride, and there is no
// NAME/depthwise.
struct InvertedResidualGeometry {
  int64_t expansion, outputs;
  Window window = 3;
  int64_t stride = 1;
  bool squeeze_excite = false;  // after the depthwise convolution
  bool fused = false;
  bool residual = true;  // whether x is added to the output if the stride is 1 and the shapes agree
};
// The results of the convolutions; kNone for those that the block does not have.
struct InvertedResidualParts {
  ValueId expansion = kNone, depthwise = kNone;
  ValueId output = kNone;
};
InvertedResidualParts InvertedResidual(NetBuilder& b, ValueId x, std::string_view name,
                                       const InvertedResidualGeometry& geometry,
                                       const LayerOptions& layer);

// Matrix product, then bias or batch norm, then activation: x (N,C) -> (N,outputs).
// Variables: NAME/weights (C,K), then as for Conv2d.
ValueId FullyConnected(NetBuilder& b, ValueId x, std::string_view name, int64_t outputs,
                       const LayerOptions& options);

// Batch normalization, then activation; keeps the shape. Variables: NAME/gamma (if
// options.gamma), NAME/beta, NAME/moving_mean, NAME/moving_variance, each (C).
ValueId BatchNorm(NetBuilder& b, ValueId x, std::string_view name, const BatchNormOptions& options,
                  Activation activation = Activation::kNone);

// These are for the implementation of layers with weights; they use the current scope.
// Adds the biases of a layer and returns them; kNone if it has batch norm or no biases.
ValueId AddBiases(NetBuilder& b, int64_t outputs, const LayerOptions& options);
// Appends the batch norm, if the layer has one, and the activation.
ValueId NormalizeAndActivate(NetBuilder& b, ValueId x, const LayerOptions& options);
ValueId Activate(NetBuilder& b, ValueId x, Activation activation);

struct PoolGeometry {
  Window window = 2;
  int64_t stride = 2;
  Pad pad = Pad::kValid;
};
// Pooling: (N,C,H,W) -> (N,C,P,Q). Padding is ignored: an average divides by the number of pixels
// of the image that the window covers.
ValueId MaxPool2d(NetBuilder& b, ValueId x, std::string_view name, const PoolGeometry& geometry);
ValueId AveragePool2d(NetBuilder& b, ValueId x, std::string_view name,
                      const PoolGeometry& geometry);
// The mean over all pixels: (N,C,H,W) -> (N,C,1,1)
ValueId GlobalAveragePool(NetBuilder& b, ValueId x, std::string_view name);

// Local response normalization over channels, with CifarNet's constants (the default of
// LrnAttributes). Keeps the shape.
ValueId Lrn(NetBuilder& b, ValueId x, std::string_view name);

// Dropout that keeps each element with probability `keep`, if the model is built for training with
// dropout. Otherwise it returns x.
ValueId Dropout(NetBuilder& b, ValueId x, std::string_view name, double keep = 0.5);

// (N,C,H,W) -> (N,H*W*C); the channels of a pixel are adjacent.
ValueId Flatten(NetBuilder& b, ValueId x, std::string_view name);

// (N,C,1,1) -> (N,C)
ValueId Squeeze(NetBuilder& b, ValueId x, std::string_view name);

// (N,K) -> probabilities (N,K)
ValueId Softmax(NetBuilder& b, ValueId x, std::string_view name);

// Returns the name that TensorFlow gives to unnamed layer number `number`: "conv", "conv_1",
// "conv_2", ...
std::string Numbered(std::string_view name, int64_t number);

// The head of MobileNets, for x (N,C,1,1): dropout, then the 1x1 convolution Logits/NAME. Adds the
// end points Logits and Predictions.
NetOutput PooledHead(NetBuilder& b, ValueId x, std::string_view name, double keep,
                     const LayerOptions& layer);

// The head of AlexNet, OverFeat and VGG: three dense layers, implemented as convolutions, with
// dropout between them. fc6 covers the whole map; fc7; fc8 gives the logits. `last` are the options
// of fc8, `dense` those of the others.
struct DenseGeometry {
  int64_t window;    // of fc6: height and width of the map x
  int64_t fc6, fc7;  // output channels
};
NetOutput ConvolutionalHead(NetBuilder& b, ValueId x, const DenseGeometry& geometry,
                            const LayerOptions& dense, const LayerOptions& last);

}  // namespace carole::nets
