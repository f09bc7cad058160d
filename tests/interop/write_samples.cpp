// Writes small files of known content. The Python checks in this folder read them with the real
// libraries.
//
//   write_samples checkpoint FOLDER | events FOLDER
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/checkpoint_folder.h"
#include "io/events/event_writer.h"

namespace carole::io {
namespace {

// Element i is first + i/4: exact in fp32, so that Python can expect equality.
CheckpointVariable Variable(const std::string& name, const Shape& shape, float first,
                            bool trainable) {
  CheckpointVariable v{.name = name, .shape = shape, .trainable = trainable};
  for (int64_t i = 0; i < shape.size(); ++i)
    v.data.push_back(first + 0.25f * static_cast<float>(i));
  return v;
}

void WriteCheckpointSample(const std::string& folder) {
  Checkpoint c{.step = 120, .epoch = 2, .position = 640, .seed = 18446744073709551611u};
  c.variables = {Variable("net/conv1/weights", {3, 3, 2, 4}, 1, true),
                 Variable("net/conv1/BatchNorm/beta", {4}, 2, true),
                 Variable("net/conv1/BatchNorm/gamma", {4}, 3, true),
                 Variable("net/conv1/BatchNorm/moving_mean", {4}, 4, false),
                 Variable("net/conv1/BatchNorm/moving_variance", {4}, 5, false),
                 Variable("net/conv2_depthwise/depthwise_weights", {3, 3, 4, 1}, 6, true),
                 Variable("net/logits/weights", {4, 3}, 7, true),
                 Variable("net/logits/biases", {3}, 8, true)};
  c.slots = {Variable("net/conv1/weights/Momentum", {3, 3, 2, 4}, -1, false),
             Variable("beta1_power", {}, 0.5f, false)};
  c.attributes = {{"model_name", "net"}, {"flags", "--batch_size=8 --note=naïve"}, {"empty", ""}};
  WriteCheckpoint(c, CheckpointPath(folder, c.step));
}

void WriteEventSample(const std::string& folder) {
  // A PNG of 2x1 gray pixels.
  static constexpr unsigned char kPng[] = {
      0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
      0x44, 0x52, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x01, 0x08, 0x00, 0x00, 0x00,
      0x00, 0xd1, 0x49, 0x20, 0x56, 0x00, 0x00, 0x00, 0x0b, 0x49, 0x44, 0x41, 0x54, 0x78,
      0xda, 0x63, 0x60, 0xf8, 0x0f, 0x00, 0x01, 0x02, 0x01, 0x00, 0xd1, 0x1a, 0xcb, 0x8f,
      0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
  {  // an earlier run, which the next one repeats from step 1
    EventWriter earlier(folder);
    for (int step = 1; step < 60; ++step) earlier.AddScalar(step, "total_loss_1", 9.0f);
  }
  EventWriter writer(folder, 1);
  for (int step = 0; step < 5; ++step) {
    writer.AddScalar(step * 10, "total_loss_1", 2.0f - 0.25f * static_cast<float>(step));
  }
  writer.AddScalar(40, "not_a_number", std::nanf(""));
  writer.AddHistogram(40, "weights", std::vector<float>{-1, 0, 0, 1, 1, 3});
  writer.AddImage(40, "input",
                  {.height = 1,
                   .width = 2,
                   .channels = 1,
                   .png = {reinterpret_cast<const char*>(kPng), sizeof(kPng)}});
}

}  // namespace
}  // namespace carole::io

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: write_samples checkpoint|events FOLDER\n");
    return 64;
  }
  try {
    if (std::string_view(argv[1]) == "checkpoint") {
      carole::io::WriteCheckpointSample(argv[2]);
    } else {
      carole::io::WriteEventSample(argv[2]);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
