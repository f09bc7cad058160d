// Describes a convolution in the form in which cuDNN gets it: direction, shapes, fused operations.
// Private to src/backend/cuda. Free of cuDNN's headers, so that tests can include it.
//
// Two cases need another form than the operation's own:
//   * cuDNN pads both sides by the same amount; TensorFlow's SAME padding may not.
//   * Tensor cores need more channels than an image has (3). Channels of zeros are added, or blocks
//     of pixels become pixels with more channels.
// The essay at the top of conv2d.cpp explains all forms, with an example.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "src/backend/cuda/kernels/copy.h"
#include "src/backend/cuda/runtime/cuda.h"
#include "src/backend/ops/conv2d.h"
#include "src/core/check.h"
#include "src/core/divide_up.h"

namespace carole::cuda {

// A convolution or one of its gradients. Shapes: x (N,C,H,W), w (K,C/groups,R,S), y (N,K,P,Q).
struct ConvolutionTask {
  enum class Direction : uint8_t { kForward, kData, kFilter };

  Direction direction = Direction::kForward;
  Shape x = {}, w = {}, y = {};
  Conv2dAttributes a;  // after ForLibrary(), the padding is the same on both sides
  DType type = DType::kF32;
  // Operations that are fused with the convolution, as is a.relu:
  bool bias = false, residual = false;  // forward: a bias and a residual are added
  bool mask = false;                    // data gradient: dx is 0 where y of a ReLU is 0
  PixelBlock pixel_block = {};          // the transform that x, w and y have undergone

  // Returns the task of an operation, in the operation's own shapes.
  static ConvolutionTask Of(const OpSpec& spec) {
    const auto &in = spec.inputs, &out = spec.outputs;
    ConvolutionTask task{.a = spec.attributes.as<Conv2dAttributes>(), .type = ElementType(spec)};
    if (spec.kind == op::kConv2d) {
      task.direction = Direction::kForward;
      task.x = in[0].shape, task.w = in[1].shape, task.y = out[0].shape;
      task.bias = IsPresent(in, 2);
      task.residual = IsPresent(in, 3);
    } else if (spec.kind == op::kConv2dBackwardData) {
      task.direction = Direction::kData;
      task.x = out[0].shape, task.w = in[1].shape, task.y = in[0].shape;
      task.mask = IsPresent(in, kPosition<Conv2dBackwardDataInputs>.relu_y);
    } else {
      task.direction = Direction::kFilter;
      task.x = in[0].shape, task.w = out[0].shape, task.y = in[1].shape;
    }
    return task;
  }

  // Returns the form in which cuDNN computes this task best:
  //   * A filter that spans the whole image is a matrix product, and gets that shape. cuDNN has few
  //     kernels for filters this large, and in 16 bits none with tensor cores.
  //   * A first layer uses pixel blocks where PixelBlockForImage() says so.
  //   * Otherwise x may get channels of zeros, and unequal padding becomes part of x.
  // The caller copies tensors to these shapes. `tf32`: fp32 may be rounded to TF32.
  ConvolutionTask ForLibrary(bool tf32) const {
    ConvolutionTask task = *this;
    const Padding& p = a.padding;
    if (SpansImage()) {
      task.x = Shape{x[0], x[1] * x[2] * x[3], 1, 1};
      task.w = Shape{w[0], task.x[1], 1, 1};
      task.a.stride_h = task.a.stride_w = 1;
      return task;
    }
    if (const PixelBlock of = PixelBlockForImage(); of.columns > 1) return WithPixelBlocks(of);
    const int64_t channels = ChannelsForTensorCores(tf32);
    task.x = Shape{x[0], channels, x[2], x[3]};
    task.w = Shape{w[0], channels == x[1] ? w[1] : channels, w[2], w[3]};
    if (p.top == p.bottom && p.left == p.right) return task;
    task.x = Shape{x[0], channels, x[2] + p.top + p.bottom, x[3] + p.left + p.right};
    task.a.padding = {};
    task.mask = false;  // dx and y of the ReLU now have different shapes
    return task;
  }
  // Whether the filter spans the whole image.
  bool SpansImage() const {
    return a.padding == Padding{} && a.groups == 1 && a.dilation == 1 && w[2] == x[2] &&
           w[3] == x[3];
  }
  // Whether this can be the first layer of a net, in 16 bits: few channels, no data gradient.
  bool IsFirstLayer() const {
    return type != DType::kF32 && direction != Direction::kData && x[1] <= 4 &&
           a.stride_h == a.stride_w && a.stride_w <= 2 && a.dilation == 1 && a.groups == 1 &&
           !residual;
  }
  // Returns the pixel block for the first layer of a net, for which cuDNN has no fast kernels, as
  // it has few channels (image_convolution.h may have a kernel instead). Returns a block of one
  // pixel if pixels stay as they are. The gradient of a filter is faster with fewer channels, so it
  // pairs outputs for stride 1 only. For ResNet's first layer at batch 256, pixel blocks take 0.28
  // ms instead of 1.54 ms, and 0.46 ms instead of 0.88 ms for the gradient of its filter
  // (cuDNN 9.19 on an H200).
  PixelBlock PixelBlockForImage() const {
    const bool pairs_outputs =
        y[3] % 2 == 0 && (direction == Direction::kForward || a.stride_w == 1);
    const int stride = static_cast<int>(a.stride_w), outputs = pairs_outputs ? 2 : 1;
    if (!IsFirstLayer() || w[3] == 1 || stride * outputs == 1) return {};
    return {.rows = stride, .columns = stride * outputs, .outputs = outputs};
  }
  bool uses_pixel_blocks() const { return pixel_block.columns > 1; }
  // Whether two outputs are one pixel of y, while the pixels of x stay as they are.
  bool pairs_outputs() const { return pixel_block.outputs > 1 && !uses_pixel_blocks(); }
  // Whether WithPairedOutputs() applies to this task, which ForLibrary() returned. cuDNN's kernels
  // that add a bias are slow with few filters: 250 TFLOP/s for VGG's conv1_2 at batch 128 (64
  // filters), 700 TFLOP/s with 128 filters (cuDNN 9.19 on an H200). Without a bias, and for the
  // gradient of the filter, pairs gained nothing.
  bool CanPairOutputs() const {
    return direction == Direction::kForward && !IsUnfused() && type != DType::kF32 &&
           !uses_pixel_blocks() && w[3] >= 3 && w[0] <= 64 && x[1] >= kNeverPaddedChannels &&
           y[3] % 2 == 0 && a.stride_w == 1 && a.dilation == 1 && a.groups == 1;
  }
  // Returns the task in which two neighboring outputs of a row are one pixel with twice the
  // channels. The filter becomes one column wider. Its column of zeros is the last one for the
  // first output, and the first one for the second output.
  ConvolutionTask WithPairedOutputs() const {
    ConvolutionTask task = *this;
    task.pixel_block.outputs = 2;
    task.w = Shape{2 * w[0], w[1], w[2], w[3] + 1};
    task.y = Shape{y[0], 2 * y[1], y[2], y[3] / 2};
    task.a.stride_w = 2;
    return task;
  }
  // Returns the task on pixel blocks, which has stride 1 and no padding.
  ConvolutionTask WithPixelBlocks(const PixelBlock& of) const {
    ConvolutionTask task = *this;
    const int64_t grain = direction == Direction::kForward ? 16 : 8;
    const int64_t channels = DivideUp(x[1] * of.rows * of.columns, grain) * grain;
    const int64_t r = DivideUp(w[2], of.rows);
    const int64_t s = DivideUp(w[3] + (of.outputs - 1) * of.stride(), of.columns);
    task.pixel_block = of;
    task.w = Shape{w[0] * of.outputs, channels, r, s};
    task.y = Shape{y[0], y[1] * of.outputs, y[2], y[3] / of.outputs};
    task.x = Shape{x[0], channels, task.y[2] + r - 1, task.y[3] + s - 1};
    task.a.stride_h = task.a.stride_w = 1;
    task.a.padding = {};
    return task;
  }
  // Returns the number of channels that x needs for tensor cores, at least its own. They need 16
  // bytes for each pixel; for stride 2 there are kernels for 4 channels of 16 bits (NVIDIA,
  // "Convolutional Layers User's Guide"). Data gradients are left as they are: they are not
  // computed for images.
  int64_t ChannelsForTensorCores(bool tf32) const {
    const bool narrow = type != DType::kF32;
    if (direction == Direction::kData || a.groups > 1 || !(narrow || tf32)) return x[1];
    const int64_t wanted = narrow && a.stride_w == 1 ? kNeverPaddedChannels : 4;
    return std::max(x[1], wanted);
  }
  // Returns the task without the operations that cuDNN may not be able to fuse.
  ConvolutionTask Unfused() const {
    ConvolutionTask plain = *this;
    plain.bias = plain.residual = plain.mask = plain.a.relu = false;
    return plain;
  }
  bool IsUnfused() const { return !bias && !residual && !mask && !a.relu; }
  // Describes the task, for error messages and as a key of the plan cache.
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
