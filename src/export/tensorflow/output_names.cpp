#include "src/export/tensorflow/output_names.h"

namespace carole::exporting {
namespace {

// {} stands for the name of the net.
struct Row {
  std::string_view begin;  // of the net's name; the first row that fits is used
  std::string_view logits;
  std::string_view predictions = "predictions";
};
constexpr Row kRows[] = {
    {"lenet", "LeNet/fc4/BiasAdd", "Predictions/Reshape_1"},
    {"cifarnet", "CifarNet/logits/BiasAdd", "CifarNet/Predictions/Reshape_1"},
    {"alexnet_v2", "{}/fc8/squeezed"},
    {"overfeat", "{}/fc8/squeezed"},
    {"vgg_", "{}/fc8/squeezed"},
    {"inception_resnet_v2", "InceptionResnetV2/Logits/Logits/BiasAdd",
     "InceptionResnetV2/Logits/Predictions"},
    {"inception_v1", "InceptionV1/Logits/SpatialSqueeze",
     "InceptionV1/Logits/Predictions/Reshape_1"},
    {"inception_v2", "InceptionV2/Logits/SpatialSqueeze", "InceptionV2/Predictions/Reshape_1"},
    {"inception_v3", "InceptionV3/Logits/SpatialSqueeze", "InceptionV3/Predictions/Reshape_1"},
    {"inception_v4", "InceptionV4/Logits/Logits/BiasAdd", "InceptionV4/Logits/Predictions"},
    {"mobilenet_v1", "MobilenetV1/Logits/SpatialSqueeze", "MobilenetV1/Predictions/Reshape_1"},
    {"mobilenet_v2", "MobilenetV2/Logits/output", "MobilenetV2/Predictions/Reshape_1"},
    {"mobilenet_v3", "MobilenetV3/Logits/output", "MobilenetV3/Predictions/Reshape_1"},
    {"mobilenet_edgetpu", "MobilenetEdgeTPU/Logits/output",
     "MobilenetEdgeTPU/Predictions/Reshape_1"},
    {"nasnet_", "final_layer/FC/BiasAdd", "final_layer/predictions"},
    {"pnasnet_", "final_layer/FC/BiasAdd", "final_layer/predictions"},
    {"resnet_v", "{}/SpatialSqueeze", "{}/predictions/Reshape_1"}};

std::string Fill(std::string_view pattern, std::string_view net) {
  constexpr std::string_view kPlace = "{}";
  std::string name(pattern);
  if (const size_t at = name.find(kPlace); at != name.npos) name.replace(at, kPlace.size(), net);
  return name;
}

}  // namespace

OutputNames OutputNamesOf(std::string_view net) {
  for (const Row& row : kRows) {
    if (net.starts_with(row.begin)) return {Fill(row.logits, net), Fill(row.predictions, net)};
  }
  return {"logits", "predictions"};
}

}  // namespace carole::exporting
