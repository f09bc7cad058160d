// What of a convolution cuDNN is asked for, and how that lies in memory. Private to the folder, and
// free of the library's headers, so that tests can look at it.
//
// The library pads alike on both sides only; TensorFlow's SAME does not. Images whose channels
// tensor cores cannot take (red, green and blue) get some of zeros, or become blocks of pixels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "src/backend/cuda/kernels/copy.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"

namespace carole::cuda {

// A convolution, or one of its gradients, as a library is asked for it.
struct ConvolutionTask {
  enum class Direction : uint8_t { kForward, kData, kFilter };

  Direction direction = Direction::kForward;
  Shape x = {}, w = {}, y = {};
  Conv2dAttributes a;  // padded alike on both sides
  DType type = DType::kF32;
  // Forward, done in the same pass, as is a.relu.
  bool bias = false, residual = false;
  bool mask = false;   // of a ReLU on dx, likewise
  Blocks blocks = {};  // that x, w and y lie in

  static ConvolutionTask Of(const OpSpec& spec) {
    const auto &in = spec.inputs, &out = spec.outputs;
    ConvolutionTask task{.a = spec.attributes_as<Conv2dAttributes>(), .type = ElementType(spec)};
    if (spec.kind == OpKind::kConv2d) {
      task.direction = Direction::kForward;
      task.x = in[0].shape, task.w = in[1].shape, task.y = out[0].shape;
      task.bias = IsPresent(in, 2);
      task.residual = IsPresent(in, 3);
    } else if (spec.kind == OpKind::kConv2dBackwardData) {
      task.direction = Direction::kData;
      task.x = out[0].shape, task.w = in[1].shape, task.y = in[0].shape;
      task.mask = IsPresent(in, Conv2dBackwardDataPlaces::kReluY);
    } else {
      task.direction = Direction::kFilter;
      task.x = in[0].shape, task.w = out[0].shape, task.y = in[1].shape;
    }
    return task;
  }

  // As the library takes it best: a filter over the whole image is a product, and lies like one
  // (for so large filters there are few kernels, in 16 bits none with tensor cores); an image that
  // TensorFlow pads on one side more is padded before, and so are too few channels.
  ConvolutionTask ForLibrary(bool tf32) const {
    ConvolutionTask task = *this;
    const Padding& p = a.padding;
    if (SpansImage()) {
      task.x = Shape{x[0], x[1] * x[2] * x[3], 1, 1};
      task.w = Shape{w[0], task.x[1], 1, 1};
      task.a.stride_h = task.a.stride_w = 1;
      return task;
    }
    if (const Blocks of = BlocksOfImage(); of.columns > 1) return InBlocks(of);
    const int64_t channels = ChannelsForTensorCores(tf32);
    task.x = Shape{x[0], channels, x[2], x[3]};
    task.w = Shape{w[0], channels == x[1] ? w[1] : channels, w[2], w[3]};
    if (p.top == p.bottom && p.left == p.right) return task;
    task.x = Shape{x[0], channels, x[2] + p.top + p.bottom, x[3] + p.left + p.right};
    task.a.padding = {};
    task.mask = false;  // dx lies otherwise than y
    return task;
  }
  // A filter over the whole image.
  bool SpansImage() const {
    return a.padding == Padding{} && a.groups == 1 && a.dilation == 1 && w[2] == x[2] &&
           w[3] == x[3];
  }
  // Of a net's first layer, in 16 bits.
  bool IsOfImage() const {
    return type != DType::kF32 && direction != Direction::kData && x[1] <= 4 &&
           a.stride_h == a.stride_w && a.stride_w <= 2 && a.dilation == 1 && a.groups == 1 &&
           !residual;
  }
  // Nets' first layers, where image_convolution.h has no kernels for them, nor the library any fast
  // ones for so few channels. Of ResNet's it takes at batch 256 0.28 ms instead of 1.54, its
  // filter's gradient 0.46 instead of 0.88 (cuDNN 9.19 on an H200). A gradient of a filter is
  // faster with fewer channels.
  Blocks BlocksOfImage() const {
    const bool in_pairs = y[3] % 2 == 0 && (direction == Direction::kForward || a.stride_w == 1);
    const int stride = static_cast<int>(a.stride_w), outputs = in_pairs ? 2 : 1;
    if (!IsOfImage() || w[3] == 1 || stride * outputs == 1) return {};
    return {.rows = stride, .columns = stride * outputs, .outputs = outputs};
  }
  bool in_blocks() const { return blocks.columns > 1; }
  bool in_pairs() const { return blocks.outputs > 1 && !in_blocks(); }
  // Whether two outputs side by side may be one pixel of twice the channels: of ForLibrary(), where
  // kernels that add a bias come to little with so few filters. Of VGG's conv1_2 at batch 128 they
  // do 250 TFLOP/s, of 128 filters 700 (cuDNN 9.19 on an H200); without a bias, or for the filter's
  // gradient, pairs gained nothing.
  bool FitsPairs() const {
    return direction == Direction::kForward && !IsPlain() && type != DType::kF32 && !in_blocks() &&
           w[3] >= 3 && w[0] <= 64 && x[1] >= kNeverPaddedChannels && y[3] % 2 == 0 &&
           a.stride_w == 1 && a.dilation == 1 && a.groups == 1;
  }
  // The filter gets a column more: of the first output's zeros behind, of the second's in front.
  ConvolutionTask InPairs() const {
    ConvolutionTask task = *this;
    task.blocks.outputs = 2;
    task.w = Shape{2 * w[0], w[1], w[2], w[3] + 1};
    task.y = Shape{y[0], 2 * y[1], y[2], y[3] / 2};
    task.a.stride_w = 2;
    return task;
  }
  ConvolutionTask InBlocks(const Blocks& of) const {
    ConvolutionTask task = *this;
    const int64_t grain = direction == Direction::kForward ? 16 : 8;
    const int64_t channels = DivideUp(x[1] * of.rows * of.columns, grain) * grain;
    const int64_t r = DivideUp(w[2], of.rows);
    const int64_t s = DivideUp(w[3] + (of.outputs - 1) * of.stride(), of.columns);
    task.blocks = of;
    task.w = Shape{w[0] * of.outputs, channels, r, s};
    task.y = Shape{y[0], y[1] * of.outputs, y[2], y[3] / of.outputs};
    task.x = Shape{x[0], channels, task.y[2] + r - 1, task.y[3] + s - 1};
    task.a.stride_h = task.a.stride_w = 1;
    task.a.padding = {};
    return task;
  }
  // Of an image that nobody wants the gradient of. They take 16 bytes, but for strides of 2 there
  // are kernels for 4 channels of 16 bits ("Convolutional Layers User's Guide" of NVIDIA).
  int64_t ChannelsForTensorCores(bool tf32) const {
    const bool narrow = type != DType::kF32;
    if (direction == Direction::kData || a.groups > 1 || !(narrow || tf32)) return x[1];
    const int64_t wanted = narrow && a.stride_w == 1 ? kNeverPaddedChannels : 4;
    return std::max(x[1], wanted);
  }
  // Without what the library may not have in the same pass.
  ConvolutionTask Plain() const {
    ConvolutionTask plain = *this;
    plain.bias = plain.residual = plain.mask = plain.a.relu = false;
    return plain;
  }
  bool IsPlain() const { return !bias && !residual && !mask && !a.relu; }
  std::string Describe() const {
    static constexpr const char* kNames[] = {"forward", "data gradient", "filter gradient"};
    return fmt::format(
        "convolution ({}) of {} by {} to {}, stride {}x{}, padding {}x{}, dilation {}, groups {}, "
        "{}{}{}{}{}{}",
        kNames[static_cast<int>(direction)], x.ToString(), w.ToString(), y.ToString(), a.stride_h,
        a.stride_w, a.padding.top, a.padding.left, a.dilation, a.groups, Name(type),
        bias ? ", bias" : "", residual ? ", residual" : "", mask ? ", mask" : "",
        a.relu ? ", ReLU" : "", a.exact ? ", exact" : "");
  }
};

}  // namespace carole::cuda
