// Layers as TF-Slim has them: a scope with its variables, and the operations on them. Options carry
// what TF-Slim's argument scopes set; a net copies a LayerOptions and changes what differs.
//
// Activations are (N,C,H,W) or (N,C). Errors: an image that is too small for a window throws
// UsageError with the layer's path.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "nets/layers/builder.h"

namespace carole::nets {

// Moving statistics follow with 1 - decay. The fused kernel of TensorFlow, whose results we keep,
// raises epsilon to at least 1.001e-5.
struct BatchNormOptions {
  double decay = 0.999;
  double epsilon = 0.001;
  bool gamma = false;  // without: a factor of 1
  bool l2 = false;     // of gamma and beta
};

enum class Activation : uint8_t { kNone, kRelu, kRelu6, kHardSwish, kHardSigmoid };

// Of a layer with weights.
struct LayerOptions {
  Initializer weights = Initializer::XavierUniform();
  Initializer biases = Initializer::Constant(0);
  bool l2_weights = false;
  bool l2_biases = false;
  bool has_biases = true;
  const char* weights_name = "weights";        // Keras says "kernel"
  const char* biases_name = "biases";          // and "bias"
  std::optional<BatchNormOptions> batch_norm;  // takes the place of the bias
  Activation activation = Activation::kRelu;
  bool exact = false;  // Conv2dAttributes::exact

  // The same without batch norm and activation, as logits are: what batch norm kept out, the bias,
  // is there unless has_biases says no.
  LayerOptions Linear() const;
};

// Pixels around the image. kSame: ceil(n/stride) results, the odd pixel goes behind. kFixed:
// window - 1 pixels whatever the size of the image, the odd one behind (ResNet's strided
// convolutions).
enum class Pad : uint8_t { kSame, kValid, kFixed };

struct Window {
  int64_t h, w;
  Window(int64_t size) : h(size), w(size) {}  // NOLINT: 3 means 3x3
  Window(int64_t height, int64_t width) : h(height), w(width) {}
};

// Pixels that go around an image of this size.
Padding PaddingOf(const Shape& image, Pad pad, Window window, int64_t stride);

struct ConvGeometry {
  int64_t outputs;
  Window window;
  int64_t stride = 1;
  Pad pad = Pad::kSame;
};

// x (N,C,H,W) -> (N,outputs,P,Q). NAME/weights (R,S,C,K), then NAME/biases or NAME/BatchNorm/…;
// convolution, normalization, activation.
ValueId Conv2d(NetBuilder& b, ValueId x, std::string_view name, const ConvGeometry& geometry,
               const LayerOptions& options);

struct SeparableGeometry {
  int64_t outputs;  // of the pointwise convolution; 0: there is none
  Window window;    // of the depthwise one
  int64_t stride = 1;
  Pad pad = Pad::kSame;
  int64_t multiplier = 1;  // depthwise results for each channel
};

// NAME/depthwise_weights (R,S,C,M), then NAME/pointwise_weights (1,1,C*M,K) with nothing between;
// the rest as behind Conv2d. options.l2_weights holds for both.
ValueId SeparableConv2d(NetBuilder& b, ValueId x, std::string_view name,
                        const SeparableGeometry& geometry, const LayerOptions& options);

// `value` rounded to a multiple of 8, at least 8 and 0.9 * value: the widths of MobileNets.
int64_t MakeDivisible(double value);

// x times a gate for each channel (Hu et al. 2018): NAME/Conv to MakeDivisible(C/4) channels with
// ReLU and NAME/Conv_1 back, on the mean of the map. `layer` gives weights and biases.
ValueId SqueezeExcite(NetBuilder& b, ValueId x, std::string_view name, const LayerOptions& layer);

// NAME/expand: 1x1 to `expansion` channels, left out where x has as many; NAME/depthwise;
// NAME/project: 1x1, linear (Sandler et al. 2018). Fused: one convolution of the window in place of
// the first two (Gupta & Akin 2020).
struct InvertedResidualGeometry {
  int64_t expansion, outputs;
  Window window = 3;
  int64_t stride = 1;
  bool squeeze_excite = false;  // behind the depthwise convolution
  bool fused = false;
  bool residual = true;  // adds x where the stride is 1 and the shapes agree
};
struct InvertedResidualParts {
  ValueId expansion = kNone, depthwise = kNone;  // where the block has them
  ValueId output = kNone;
};
InvertedResidualParts InvertedResidual(NetBuilder& b, ValueId x, std::string_view name,
                                       const InvertedResidualGeometry& geometry,
                                       const LayerOptions& layer);

// x (N,C), NAME/weights (C,K) -> (N,K)
ValueId FullyConnected(NetBuilder& b, ValueId x, std::string_view name, int64_t outputs,
                       const LayerOptions& options);

// NAME/[gamma], beta, moving_mean, moving_variance; normalization, then the activation.
ValueId BatchNorm(NetBuilder& b, ValueId x, std::string_view name, const BatchNormOptions& options,
                  Activation activation = Activation::kNone);

// The parts around a layer's linear one, in the current scope. Biases: kNone under a batch norm.
ValueId Biases(NetBuilder& b, int64_t outputs, const LayerOptions& options);
ValueId NormalizeAndActivate(NetBuilder& b, ValueId x, const LayerOptions& options);
ValueId Activate(NetBuilder& b, ValueId x, Activation activation);

struct PoolGeometry {
  Window window = 2;
  int64_t stride = 2;
  Pad pad = Pad::kValid;
};
// (N,C,H,W) -> (N,C,P,Q); an average divides by the pixels that the window really covers.
ValueId MaxPool2d(NetBuilder& b, ValueId x, std::string_view name, const PoolGeometry& geometry);
ValueId AveragePool2d(NetBuilder& b, ValueId x, std::string_view name,
                      const PoolGeometry& geometry);
// (N,C,H,W) -> (N,C,1,1), the mean over the map.
ValueId GlobalAveragePool(NetBuilder& b, ValueId x, std::string_view name);

// Local response normalization over channels, with CifarNet's constants (the default of
// LrnAttributes).
ValueId Lrn(NetBuilder& b, ValueId x, std::string_view name);

// The identity unless the model is built for training with dropout.
ValueId Dropout(NetBuilder& b, ValueId x, std::string_view name, double keep = 0.5);

// (N,C,H,W) -> (N,H*W*C), channels fastest.
ValueId Flatten(NetBuilder& b, ValueId x, std::string_view name);

// (N,C,1,1) -> (N,C)
ValueId Squeeze(NetBuilder& b, ValueId x, std::string_view name);

// (N,K) -> probabilities (N,K)
ValueId Softmax(NetBuilder& b, ValueId x, std::string_view name);

// "conv", "conv_1", "conv_2", …: TensorFlow's names of layers that a net does not name.
std::string Numbered(std::string_view name, int64_t number);

// x (N,C,1,1): dropout and the 1x1 convolution Logits/NAME. End points Logits and Predictions.
NetOutput PooledHead(NetBuilder& b, ValueId x, std::string_view name, double keep,
                     const LayerOptions& layer);

// Dense layers in the form of convolutions, with dropout between: fc6 over the whole map, fc7, fc8
// (the logits). Shared by AlexNet, OverFeat and VGG.
struct DenseGeometry {
  int64_t window;  // of fc6: the size of the map
  int64_t fc6, fc7;
};
NetOutput ConvolutionalHead(NetBuilder& b, ValueId x, const DenseGeometry& geometry,
                            const LayerOptions& dense, const LayerOptions& last);

}  // namespace carole::nets
