// The cases that conformance_test.cpp runs on every backend. Add rows for a new operation.
#pragma once

#include <string>
#include <vector>

#include "src/backend/ops/add.h"
#include "src/backend/ops/conv2d.h"
#include "src/backend/ops/copies.h"
#include "src/backend/ops/dropout.h"
#include "src/backend/ops/gelu.h"
#include "src/backend/ops/hard_activation.h"
#include "src/backend/ops/layer_norm.h"
#include "src/backend/ops/lrn.h"
#include "src/backend/ops/multiply.h"
#include "src/backend/ops/normalize.h"
#include "src/backend/ops/pool2d.h"
#include "src/backend/ops/relu.h"
#include "src/backend/ops/sigmoid.h"
#include "src/backend/ops/silu.h"
#include "src/backend/ops/softmax.h"
#include "src/backend/ops/window.h"
#include "tests/backend/conformance_case.h"
#include "tests/backend/quantization/quantized_cases.h"
#include "tests/support/op_specs.h"

namespace carole::testing {

inline void AddConvolutions(std::vector<ConformanceCase>& cases) {
  struct Row {
    std::string name;
    ConvSizes sizes;
  };
  const Row rows[] = {
      {"1x1", Conv({2, 32, 7, 7}, 48, 1)},
      {"1x1_batch1", Conv({1, 64, 5, 9}, 16, 1, {}, {.bias = true})},
      {"1x1_stride2", Conv({3, 16, 7, 8}, 24, 1, {.stride_h = 2, .stride_w = 2})},
      {"1x1_residual", Conv({2, 32, 7, 7}, 48, 1, {}, {.residual = true})},
      {"1x1_bias_residual_relu",
       Conv({3, 20, 5, 6}, 21, 1, {.relu = true}, {.bias = true, .residual = true})},
      {"3x3_stride2_residual",
       Conv({2, 16, 10, 12}, 32, 3, {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}},
            {.residual = true})},
      {"3x3_same", Conv({2, 16, 9, 11}, 32, 3, {.padding = Around(1)})},
      {"3x3_valid_relu", Conv({1, 24, 8, 6}, 20, 3, {.relu = true}, {.bias = true})},
      {"3x3_stride2_asymmetric",
       Conv({3, 16, 10, 12}, 16, 3, {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}})},
      {"3x3_stride2_explicit",
       Conv({1, 32, 13, 11}, 40, 3, {.stride_h = 2, .stride_w = 2, .padding = Around(1)})},
      {"3x3_dilated", Conv({2, 16, 11, 11}, 16, 3, {.padding = Around(2), .dilation = 2})},
      {"5x5_first_gray",
       Conv({3, 1, 28, 28}, 32, 5, {.padding = Around(2), .relu = true}, {.bias = true})},
      {"3x3_first",
       Conv({2, 3, 19, 37}, 64, 3, {.padding = Around(1), .relu = true}, {.bias = true})},
      {"3x3_stride2_first",
       Conv({3, 3, 35, 33}, 24, 3, {.stride_h = 2, .stride_w = 2, .padding = {0, 1, 1, 0}})},
      {"5x5_first_many",
       Conv({1, 1, 33, 18}, 96, 5, {.padding = {2, 1, 0, 3}, .relu = true}, {.bias = true})},
      {"5x5_narrow", Conv({1, 6, 9, 7}, 10, 5, {.padding = Around(2)}, {.bias = true})},
      {"7x7_stride2_first",
       Conv({2, 3, 29, 31}, 64, 7, {.stride_h = 2, .stride_w = 2, .padding = Around(3)})},
      {"1x7", Conv({1, 20, 9, 9}, 17, {1, 7}, {.padding = {0, 3, 0, 3}, .relu = true})},
      {"whole_map", Conv({3, 33, 5, 5}, 21, 5, {}, {.bias = true})},
      {"whole_map_even", Conv({3, 32, 5, 4}, 24, {5, 4}, {}, {.bias = true})},
      {"many_pixels",  // more patches than the reference backend makes at a time
       Conv({3, 64, 40, 40}, 16, 3, {.padding = Around(1)})},
      // Enough tiles to use Winograd's algorithm, with partial ones at the edges. In the third
      // case, there are few tiles and many channels, so all threads sum the filter gradient
      // together.
      {"3x3_many_tiles", Conv({1, 64, 63, 64}, 64, 3, {.padding = {2, 0, 0, 2}, .relu = true},
                              {.bias = true, .residual = true})},
      {"3x3_many_tiles_valid", Conv({2, 96, 40, 42}, 80, 3)},
      {"3x3_few_tiles", Conv({1, 192, 36, 40}, 192, 3, {.padding = Around(1)}, {.bias = true})},
      {"one_to_one", Conv({2, 1, 6, 6}, 1, 3)},
      {"groups", Conv({2, 16, 8, 8}, 32, 3, {.padding = Around(1), .groups = 4}, {.bias = true})},
      {"groups_odd", Conv({1, 15, 7, 5}, 21, 1, {.groups = 3})},
      {"depthwise",
       Conv({3, 32, 9, 9}, 32, 3, {.padding = Around(1), .groups = 32}, {.bias = true})},
      {"depthwise_residual_relu",
       Conv({2, 24, 6, 7}, 24, 3, {.padding = Around(1), .groups = 24, .relu = true},
            {.residual = true})},
      {"depthwise_stride2",
       Conv({1, 20, 10, 8}, 20, 3,
            {.stride_h = 2, .stride_w = 2, .padding = {0, 0, 1, 1}, .groups = 20, .relu = true})},
      {"depthwise_stride2_explicit",
       Conv({2, 32, 9, 11}, 32, 3,
            {.stride_h = 2, .stride_w = 2, .padding = Around(1), .groups = 32})},
      {"depthwise_valid", Conv({2, 16, 6, 10}, 16, 3, {.groups = 16}, {.bias = true})},
      {"depthwise_dilated",
       Conv({1, 16, 8, 9}, 16, 3, {.padding = Around(2), .dilation = 2, .groups = 16})},
      {"depthwise_5x5", Conv({3, 32, 9, 8}, 32, 5, {.padding = Around(2), .groups = 32})},
      {"depthwise_5x5_stride2_odd",
       Conv({2, 44, 10, 11}, 44, 5,
            {.stride_h = 2, .stride_w = 2, .padding = {1, 2, 2, 2}, .groups = 44})},
      {"depthwise_7x7_stride2_small",  // some taps never meet a pixel
       Conv({2, 20, 3, 2}, 20, 7,
            {.stride_h = 2, .stride_w = 2, .padding = {2, 3, 3, 3}, .groups = 20})},
      {"depthwise_7x7_to_pixel", Conv({2, 16, 7, 7}, 16, 7, {.groups = 16})},
      {"depthwise_multiplier", Conv({2, 12, 7, 7}, 36, 3, {.padding = Around(1), .groups = 12})},
  };
  for (const auto& [name, sizes] : rows) {
    const Shape w = sizes.w(), y = sizes.y();
    const auto taps = static_cast<double>(sizes.r * sizes.s);
    cases.push_back({"conv2d_" + name, Conv2dSpec(sizes), taps * w[1] + 1});
    cases.push_back({"conv2d_backward_data_" + name, Conv2dBackwardDataSpec(sizes),
                     taps * sizes.k / sizes.attributes.groups});
    // Only for some cases, because compiling these kernels takes long on GPUs. If there is a bias,
    // its gradient is summed too.
    if (sizes.bias || sizes.attributes.relu) {
      ConvSizes masked = sizes;
      masked.relu_mask = true;
      cases.push_back({"conv2d_backward_data_masked_" + name, Conv2dBackwardDataSpec(masked),
                       taps * sizes.k / sizes.attributes.groups});
    }
    const auto pixels = static_cast<double>(y[0] * y[2] * y[3]);
    cases.push_back({"conv2d_backward_filter_" + name, Conv2dBackwardFilterSpec(sizes), pixels});
    if (sizes.attributes.relu && name.find("_first") != std::string::npos) {
      ConvSizes masked = sizes;
      masked.relu_mask = true;
      cases.push_back(
          {"conv2d_backward_filter_masked_" + name, Conv2dBackwardFilterSpec(masked), pixels});
    }
  }
}

inline void AddLinear(std::vector<ConformanceCase>& cases) {
  const struct {
    std::string name;
    LinearSizes sizes;
  } rows[] = {
      {"wide", {.n = 3, .c = 300, .k = 64, .bias = true, .relu = true}},
      {"odd", {.n = 5, .c = 37, .k = 11, .bias = true}},
      {"large", {.n = 2, .c = 1300, .k = 1000}},  // more than the reference backend packs at a time
      {"one_row", {.n = 1, .c = 128, .k = 10}},
  };
  for (const auto& [name, sizes] : rows) {
    cases.push_back({"linear_" + name, LinearSpec(sizes), sizes.c + 1.0});
    cases.push_back({"linear_backward_data_" + name, LinearBackwardDataSpec(sizes), sizes.k * 1.0});
    cases.push_back(
        {"linear_backward_filter_" + name, LinearBackwardFilterSpec(sizes), sizes.n * 1.0});
  }
}

inline void AddBatchNorms(std::vector<ConformanceCase>& cases) {
  struct Row {
    std::string name;
    BatchNormSizes sizes;
    int64_t valid_rows = 0;
  };
  const Row rows[] = {
      {"plain", {.x = {3, 32, 5, 7}}},
      {"odd_channels", {.x = {2, 19, 6, 6}, .attributes = {.epsilon = 1e-5, .decay = 0.9}}},
      {"relu", {.x = {3, 32, 5, 5}, .attributes = {.relu = true}}},
      {"relu_odd", {.x = {2, 20, 5, 5}, .attributes = {.relu = true}}},
      {"relu6", {.x = {3, 32, 5, 5}, .attributes = {.relu = true, .ceiling = 0.75}}},
      {"relu6_odd", {.x = {2, 19, 5, 5}, .attributes = {.relu = true, .ceiling = 0.75}}},
      {"no_gamma", {.x = {2, 16, 4, 4}, .gamma = false, .attributes = {.relu = true}}},
      {"no_beta", {.x = {2, 16, 4, 4}, .beta = false}},
      {"no_gamma_no_beta", {.x = {2, 24, 4, 4}, .gamma = false, .beta = false}},
      {"residual", {.x = {2, 32, 5, 5}, .residual = true}},
      {"residual_relu", {.x = {3, 36, 5, 5}, .residual = true, .attributes = {.relu = true}}},
      {"residual_relu6",
       {.x = {3, 36, 5, 5}, .residual = true, .attributes = {.relu = true, .ceiling = 0.75}}},
      {"addend", {.x = {2, 19, 5, 5}, .addend = true}},
      {"addend_relu", {.x = {3, 32, 5, 5}, .addend = true, .attributes = {.relu = true}}},
      {"residual_dy2", {.x = {2, 32, 5, 5}, .residual = true, .dy2 = true}},
      {"residual_relu_dy2",
       {.x = {3, 36, 5, 5}, .residual = true, .dy2 = true, .attributes = {.relu = true}}},
      {"residual_relu6_dy2",
       {.x = {3, 32, 5, 5},
        .residual = true,
        .dy2 = true,
        .attributes = {.relu = true, .ceiling = 0.75}}},
      {"valid_rows", {.x = {4, 16, 3, 5}}, 3},
      {"valid_rows_relu", {.x = {4, 20, 3, 5}, .attributes = {.relu = true}}, 1},
      {"valid_rows_residual_relu",
       {.x = {3, 16, 4, 4}, .residual = true, .attributes = {.relu = true}},
       2},
      {"valid_rows_residual_relu_dy2",
       {.x = {3, 16, 4, 4},
        .residual = true,
        .dy2 = true,
        .addend = true,
        .attributes = {.relu = true}},
       2},
      {"relu_bitmask",
       {.x = {3, 40, 5, 5}, .residual = true, .attributes = {.relu = true}, .relu_bitmask = true}},
      {"relu_bitmask_dy2",
       {.x = {3, 16, 4, 4},
        .residual = true,
        .dy2 = true,
        .addend = true,
        .attributes = {.relu = true},
        .relu_bitmask = true},
       2},
      {"matrix", {.x = {6, 10}}},
      {"slice", {.x = {3, 32, 5, 7}, .attributes = {.dy_begin = 16}, .dy_channels = 80}},
      {"slice_relu",
       {.x = {2, 48, 5, 5}, .attributes = {.relu = true, .dy_begin = 32}, .dy_channels = 80}},
      {"slice_residual_relu_dy2",
       {.x = {3, 16, 4, 4},
        .residual = true,
        .dy2 = true,
        .attributes = {.relu = true},
        .dy_channels = 48},
       2},
      {"slice_matrix", {.x = {6, 16}, .attributes = {.dy_begin = 32}, .dy_channels = 48}},
  };
  for (const auto& [name, sizes, valid_rows] : rows) {
    const double terms = static_cast<double>(sizes.x.size() / sizes.x[1]);
    const RunContext context{.valid_rows = valid_rows};
    cases.push_back({"batch_norm_" + name, BatchNormSpec(sizes), terms, context});
    cases.push_back({"batch_norm_backward_" + name, BatchNormBackwardSpec(sizes), terms, context});
    if (sizes.relu_bitmask) continue;
    BatchNormSizes inference = sizes;
    inference.attributes.training = false;
    cases.push_back({"batch_norm_inference_" + name, BatchNormSpec(inference), 1, context});
  }
}

// Square windows with the same stride in both directions.
inline Pool2dAttributes Square(int64_t window, int64_t stride, const Padding& padding = {}) {
  return {.window_h = window,
          .window_w = window,
          .stride_h = stride,
          .stride_w = stride,
          .padding = padding};
}

inline void AddPools(std::vector<ConformanceCase>& cases) {
  struct Row {
    std::string name;
    Shape x;
    Pool2dAttributes attributes;
  };
  const Row rows[] = {
      {"2x2", {2, 16, 8, 8}, {}},
      {"2x2_odd", {1, 20, 9, 7}, {.padding = {0, 0, 1, 1}}},
      {"3x3_stride2_valid", {3, 32, 9, 11}, Square(3, 2)},
      {"2x2_leftover", {2, 16, 5, 7}, {}},  // some pixels are in no window
      {"3x3_stride2_leftover", {2, 16, 8, 10}, Square(3, 2)},
      {"3x3_stride2_asymmetric", {2, 16, 8, 10}, Square(3, 2, {0, 0, 1, 1})},
      {"3x3_stride2_explicit", {1, 24, 9, 9}, Square(3, 2, Around(1))},
      {"3x3_stride1_same", {2, 5, 6, 5}, Square(3, 1, Around(1))},
      {"3x3_stride1_wide", {2, 16, 6, 5}, Square(3, 1, {2, 2, 1, 2})},
      {"1x1_stride2", {2, 16, 7, 8}, Square(1, 2)},
      {"whole_map", {3, 33, 7, 5}, {.window_h = 7, .window_w = 5, .stride_h = 1, .stride_w = 1}},
      {"whole_map_in_blocks",
       {2, 48, 5, 7},
       {.window_h = 5, .window_w = 7, .stride_h = 1, .stride_w = 1}},
  };
  for (const auto& [name, x, attributes] : rows) {
    for (const auto mode : {Pool2dAttributes::Mode::kMax, Pool2dAttributes::Mode::kAverage}) {
      PoolSizes sizes{x, attributes};
      sizes.attributes.mode = mode;
      const std::string full = (sizes.is_max() ? "max_" : "average_") + name;
      const double terms = static_cast<double>(attributes.window_h * attributes.window_w);
      cases.push_back({"pool2d_" + full, Pool2dSpec(sizes), terms});
      cases.push_back({"pool2d_backward_" + full, Pool2dBackwardSpec(sizes), terms});
    }
  }
}

inline void AddElementwise(std::vector<ConformanceCase>& cases) {
  const Shape blocked{2, 32, 5, 6}, odd{3, 19, 4, 5}, matrix{7, 13};
  const struct {
    std::string name;
    Shape shape;
  } shapes[] = {{"blocked", blocked}, {"odd", odd}, {"matrix", matrix}};
  for (const auto& [name, shape] : shapes) {
    for (const double ceiling : {0.0, 6.0}) {
      const std::string full = (ceiling > 0 ? "relu6_" : "relu_") + name;
      const ReluAttributes a{.ceiling = ceiling};
      cases.push_back({full, SameShapeSpec(op::kRelu, a, shape, 1)});
      OpSpec backward = SameShapeSpec(op::kReluBackward, a, shape, 2);
      cases.push_back({full + "_backward", backward});
      backward.outputs.push_back(PlainSpec({shape[1]}));
      cases.push_back({full + "_backward_and_bias", std::move(backward),
                       static_cast<double>(shape.size() / shape[1])});
    }
    cases.push_back({"add2_" + name, SameShapeSpec(op::kAdd, {}, shape, 2)});
    cases.push_back({"add3_" + name, SameShapeSpec(op::kAdd, {}, shape, 3)});
    const DropoutAttributes dropout{.keep = 0.6, .layer = 3};
    const RunContext context{.seed = 42, .step = 17, .first_sample = 5};
    cases.push_back(
        {"dropout_" + name, SameShapeSpec(op::kDropout, dropout, shape, 1), 1, context});
    cases.push_back({"dropout_backward_" + name,
                     SameShapeSpec(op::kDropoutBackward, dropout, shape, 1), 1, context});
  }
  const LrnAttributes lrns[] = {{}, {.radius = 2, .bias = 2, .alpha = 0.1, .beta = 0.5}};
  for (size_t i = 0; i < std::size(lrns); ++i) {
    const std::string suffix = std::to_string(i);
    for (const auto& [name, shape] : shapes) {
      if (shape.rank() != 4) continue;
      cases.push_back({"lrn_" + name + suffix, SameShapeSpec(op::kLrn, lrns[i], shape, 1), 9});
      cases.push_back(
          {"lrn_backward_" + name + suffix, SameShapeSpec(op::kLrnBackward, lrns[i], shape, 2), 9});
    }
  }
}

inline void AddHardActivations(std::vector<ConformanceCase>& cases) {
  const struct {
    std::string name;
    Shape shape;
  } shapes[] = {{"blocked", {2, 32, 5, 6}}, {"odd", {3, 19, 4, 5}}, {"pixel", {3, 24, 1, 1}}};
  for (const auto& [name, shape] : shapes) {
    for (const bool swish : {true, false}) {
      const HardActivationAttributes a{.swish = swish};
      const std::string full = (swish ? "hard_swish_" : "hard_sigmoid_") + name;
      cases.push_back({full, SameShapeSpec(op::kHardActivation, a, shape, 1)});
      cases.push_back(
          {full + "_backward", SameShapeSpec(op::kHardActivationBackward, a, shape, 2)});
    }
    const ScaleAttributes scale{.factor = 0.17};
    cases.push_back({"scale_" + name, SameShapeSpec(op::kScale, scale, shape, 1)});
    cases.push_back({"scaled_add_" + name, SameShapeSpec(op::kScaledAdd, scale, shape, 2)});
  }
}

inline void AddSmoothActivations(std::vector<ConformanceCase>& cases) {
  const std::pair<std::string, Shape> shapes[] = {
      {"blocked", {2, 32, 5, 6}}, {"odd", {3, 19, 4, 5}}, {"matrix", {7, 13}}};
  for (const auto& [name, shape] : shapes) {
    for (const bool tanh : {false, true}) {
      const GeluAttributes a{.tanh = tanh};
      const std::string full = (tanh ? "gelu_tanh_" : "gelu_") + name;
      cases.push_back({full, SameShapeSpec(op::kGelu, a, shape, 1)});
      cases.push_back({full + "_backward", SameShapeSpec(op::kGeluBackward, a, shape, 2)});
    }
    cases.push_back({"sigmoid_" + name, SameShapeSpec(op::kSigmoid, {}, shape, 1)});
    cases.push_back(
        {"sigmoid_" + name + "_backward", SameShapeSpec(op::kSigmoidBackward, {}, shape, 2)});
    cases.push_back({"multiply_" + name, SameShapeSpec(op::kMultiply, {}, shape, 2)});
    cases.push_back({"silu_" + name, SameShapeSpec(op::kSilu, {}, shape, 1)});
    cases.push_back({"silu_" + name + "_backward", SameShapeSpec(op::kSiluBackward, {}, shape, 2)});
  }
}

inline void AddLayerNorms(std::vector<ConformanceCase>& cases) {
  const struct {
    std::string name;
    LayerNormSizes sizes;
  } rows[] = {{"blocked", {{2, 32, 5, 6}}},
              {"odd", {{3, 19, 4, 5}}},
              {"wide", {{2, 768, 3, 3}}},
              {"very_wide", {{1, 4099, 1, 2}}},
              {"matrix", {{70, 13}}},
              {"many_pixels", {{2, 8, 40, 40}}},
              {"without_gamma", {{3, 16, 4, 5}, false, true}},
              {"without_beta", {{3, 16, 4, 5}, true, false}},
              {"without_dx", {{3, 16, 4, 5}, true, true, false}}};
  for (const auto& [name, sizes] : rows) {
    const auto channels = static_cast<double>(sizes.x[1]);
    const double pixels = static_cast<double>(sizes.x.size()) / channels;
    const LayerNormAttributes a{.epsilon = 1e-3};
    cases.push_back({"layer_norm_" + name, LayerNormSpec(sizes, a), channels});
    cases.push_back({"layer_norm_backward_" + name, LayerNormBackwardSpec(sizes, a),
                     std::max(channels, pixels)});
  }
}

// Each row has one mask bit. At step 60 of 80, with 0.2 at the end, the probability is 0.4.
inline void AddDropPaths(std::vector<ConformanceCase>& cases) {
  const RunContext context{.seed = 42, .step = 60, .first_sample = 5};
  for (const auto& [name, shape] : {std::pair<std::string, Shape>{"blocked", {8, 32, 3, 3}},
                                    {"odd", {7, 19, 4, 5}},
                                    {"matrix", {9, 13}}}) {
    const DropoutAttributes a{.keep = 0.2, .layer = 3, .per_row = true, .schedule_steps = 80};
    cases.push_back({"drop_path_" + name, SameShapeSpec(op::kDropout, a, shape, 1), 1, context});
    cases.push_back({"drop_path_backward_" + name, SameShapeSpec(op::kDropoutBackward, a, shape, 1),
                     1, context});
  }
}

inline void AddChannelCopies(std::vector<ConformanceCase>& cases) {
  const struct {
    std::string name;
    Shape x;
    std::vector<int64_t> channels;
  } rows[] = {
      {"aligned", {2, 0, 5, 7}, {64, 16, 32}}, {"odd", {3, 0, 4, 5}, {44, 44, 19, 3}},
      {"mixed", {1, 0, 33, 34}, {16, 20, 48}}, {"gray", {2, 0, 6, 6}, {1, 1}},
      {"pixel", {4, 0, 1, 1}, {24, 40}},
  };
  for (const auto& [name, x, channels] : rows) {
    const OpSpec concat = ConcatSpec(x, channels);
    cases.push_back({"concat_" + name, concat});
    int64_t begin = 0;
    for (int64_t count : channels) {
      cases.push_back({"slice_" + name + "_" + std::to_string(begin),
                       SliceSpec(concat.outputs[0].shape, begin, count)});
      begin += count;
    }
  }
}

inline void AddPads(std::vector<ConformanceCase>& cases) {
  const struct {
    std::string name;
    Shape x;
    Padding padding;
  } rows[] = {
      {"around", {2, 32, 5, 7}, {1, 2, 3, 4}},
      {"shift", {3, 19, 6, 5}, {-1, -1, 1, 1}},
      {"shift_back", {3, 44, 6, 5}, {1, 1, -1, -1}},
      {"crop", {1, 16, 8, 9}, {-1, -2, -3, -4}},
      {"nothing_left", {1, 16, 3, 3}, {-3, -4, 5, 5}},
      {"to_pixel", {2, 32, 3, 3}, {-1, -1, -1, -1}},
      {"from_pixel", {2, 20, 1, 1}, {1, 0, 1, 2}},
  };
  for (const auto& [name, x, padding] : rows)
    cases.push_back({"pad2d_" + name, Pad2dSpec(x, padding)});
}

inline void AddNormalizations(std::vector<ConformanceCase>& cases) {
  const NormalizeAttributes a{.subtract = {123.68f, 116.78f, 103.94f}, .multiply = 1 / 127.5f};
  for (const auto& [name, x] : {std::pair<std::string, Shape>{"color", {2, 3, 16, 20}},
                                {"color_odd", {3, 3, 5, 7}},
                                {"gray", {2, 1, 8, 8}}})
    cases.push_back({"normalize_" + name, NormalizeSpec(x, a)});
}

inline void AddChannelScales(std::vector<ConformanceCase>& cases) {
  for (const auto& [name, x] : {std::pair<std::string, Shape>{"blocked", {2, 32, 5, 6}},
                                {"odd", {3, 19, 4, 5}},
                                {"large", {1, 24, 29, 31}},
                                {"pixel", {2, 40, 1, 1}}}) {
    cases.push_back({"scale_channels_" + name, ScaleChannelsSpec(x)});
    cases.push_back({"scale_channels_backward_" + name, ScaleChannelsBackwardSpec(x),
                     static_cast<double>(x[2] * x[3])});
  }
  OpSpec only = ScaleChannelsBackwardSpec({2, 20, 3, 3});
  only.outputs[0] = AbsentSpec();
  cases.push_back({"scale_channels_backward_dscale_only", only, 9});
  only = ScaleChannelsBackwardSpec({2, 20, 3, 3});
  only.outputs[1] = AbsentSpec();
  cases.push_back({"scale_channels_backward_dx_only", only});
}

inline void AddLosses(std::vector<ConformanceCase>& cases) {
  cases.push_back({"softmax", SameShapeSpec(op::kSoftmax, {}, {5, 10}, 1), 10});
  cases.push_back({"softmax_wide", SameShapeSpec(op::kSoftmax, {}, {3, 1001}, 1), 1001});
  cases.push_back({"cross_entropy", CrossEntropySpec(6, 10, {.scale = 0.25}), 10});
  cases.push_back({"cross_entropy_smoothed",
                   CrossEntropySpec(4, 1000, {.smoothing = 0.1, .scale = 0.5}), 1000});
  cases.push_back({"cross_entropy_soft", SoftCrossEntropySpec(6, 10, {.scale = 0.25}), 10});
  cases.push_back({"cross_entropy_soft_smoothed",
                   SoftCrossEntropySpec(4, 1000, {.smoothing = 0.1, .scale = 0.5}), 1000});
}

inline void AddCopies(std::vector<ConformanceCase>& cases) {
  const auto add = [&](const std::string& name, OpKind kind, TensorSpec from, TensorSpec to) {
    cases.push_back({name, {kind, {}, {std::move(from)}, {std::move(to)}}});
  };
  const Shape map{2, 20, 3, 5}, filter{20, 6, 3, 5}, matrix{9, 14};
  const auto row_major = [](const Shape& s) {
    return TensorSpec{s, DType::kF32, Layout::RowMajor()};
  };
  add("reshape_flatten", op::kReshape, PlainSpec(map), PlainSpec({2, 300}));
  add("reshape_unflatten", op::kReshape, PlainSpec({2, 300}), PlainSpec(map));
  add("reshape_squeeze", op::kReshape, PlainSpec({3, 17, 1, 1}), PlainSpec({3, 17}));
  add("reorder_nhwc_to_row_major", op::kReorder, PlainSpec(map), row_major(map));
  add("reorder_row_major_to_nhwc", op::kReorder, row_major(map), PlainSpec(map));
  add("reorder_filter_to_row_major", op::kReorder, FilterSpec(filter), row_major(filter));
  add("reorder_row_major_to_filter", op::kReorder, row_major(filter), FilterSpec(filter));
  add("reorder_matrix_to_filter", op::kReorder, row_major(matrix), FilterSpec(matrix));
  add("reorder_same", op::kReorder, PlainSpec(map), PlainSpec(map));
}

inline std::vector<ConformanceCase> ConformanceCases() {
  std::vector<ConformanceCase> cases;
  AddConvolutions(cases);
  AddLinear(cases);
  AddBatchNorms(cases);
  AddFakeQuants(cases);
  AddFoldedBatchNorms(cases);
  AddFoldedWeights(cases);
  AddPools(cases);
  AddElementwise(cases);
  AddHardActivations(cases);
  AddSmoothActivations(cases);
  AddLayerNorms(cases);
  AddDropPaths(cases);
  AddChannelCopies(cases);
  AddPads(cases);
  AddChannelScales(cases);
  AddNormalizations(cases);
  AddLosses(cases);
  AddCopies(cases);
  return cases;
}

}  // namespace carole::testing
