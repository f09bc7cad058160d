#include "src/export/tensorflow/output_names.h"

#include <gtest/gtest.h>

#include "nets/nets.h"

namespace carole::exporting {
namespace {

// As TF-Slim's export_inference_graph names them. Nets without predictions get a name of ours.
struct Row {
  const char* net;
  const char* logits;
  const char* predictions;
};
constexpr Row kRows[] = {
    {"alexnet_v2", "alexnet_v2/fc8/squeezed", "predictions"},
    {"cifarnet", "CifarNet/logits/BiasAdd", "CifarNet/Predictions/Reshape_1"},
    {"inception_resnet_v2", "InceptionResnetV2/Logits/Logits/BiasAdd",
     "InceptionResnetV2/Logits/Predictions"},
    {"inception_v1", "InceptionV1/Logits/SpatialSqueeze",
     "InceptionV1/Logits/Predictions/Reshape_1"},
    {"inception_v2", "InceptionV2/Logits/SpatialSqueeze", "InceptionV2/Predictions/Reshape_1"},
    {"inception_v3", "InceptionV3/Logits/SpatialSqueeze", "InceptionV3/Predictions/Reshape_1"},
    {"inception_v4", "InceptionV4/Logits/Logits/BiasAdd", "InceptionV4/Logits/Predictions"},
    {"lenet", "LeNet/fc4/BiasAdd", "Predictions/Reshape_1"},
    {"mobilenet_edgetpu", "MobilenetEdgeTPU/Logits/output",
     "MobilenetEdgeTPU/Predictions/Reshape_1"},
    {"mobilenet_edgetpu_075", "MobilenetEdgeTPU/Logits/output",
     "MobilenetEdgeTPU/Predictions/Reshape_1"},
    {"mobilenet_v1", "MobilenetV1/Logits/SpatialSqueeze", "MobilenetV1/Predictions/Reshape_1"},
    {"mobilenet_v1_025", "MobilenetV1/Logits/SpatialSqueeze", "MobilenetV1/Predictions/Reshape_1"},
    {"mobilenet_v1_050", "MobilenetV1/Logits/SpatialSqueeze", "MobilenetV1/Predictions/Reshape_1"},
    {"mobilenet_v1_075", "MobilenetV1/Logits/SpatialSqueeze", "MobilenetV1/Predictions/Reshape_1"},
    {"mobilenet_v2", "MobilenetV2/Logits/output", "MobilenetV2/Predictions/Reshape_1"},
    {"mobilenet_v2_035", "MobilenetV2/Logits/output", "MobilenetV2/Predictions/Reshape_1"},
    {"mobilenet_v2_140", "MobilenetV2/Logits/output", "MobilenetV2/Predictions/Reshape_1"},
    {"mobilenet_v3_large", "MobilenetV3/Logits/output", "MobilenetV3/Predictions/Reshape_1"},
    {"mobilenet_v3_large_minimalistic", "MobilenetV3/Logits/output",
     "MobilenetV3/Predictions/Reshape_1"},
    {"mobilenet_v3_small", "MobilenetV3/Logits/output", "MobilenetV3/Predictions/Reshape_1"},
    {"mobilenet_v3_small_minimalistic", "MobilenetV3/Logits/output",
     "MobilenetV3/Predictions/Reshape_1"},
    {"nasnet_cifar", "final_layer/FC/BiasAdd", "final_layer/predictions"},
    {"nasnet_large", "final_layer/FC/BiasAdd", "final_layer/predictions"},
    {"nasnet_mobile", "final_layer/FC/BiasAdd", "final_layer/predictions"},
    {"overfeat", "overfeat/fc8/squeezed", "predictions"},
    {"pnasnet_large", "final_layer/FC/BiasAdd", "final_layer/predictions"},
    {"pnasnet_mobile", "final_layer/FC/BiasAdd", "final_layer/predictions"},
    {"resnet_v1_101", "resnet_v1_101/SpatialSqueeze", "resnet_v1_101/predictions/Reshape_1"},
    {"resnet_v1_152", "resnet_v1_152/SpatialSqueeze", "resnet_v1_152/predictions/Reshape_1"},
    {"resnet_v1_200", "resnet_v1_200/SpatialSqueeze", "resnet_v1_200/predictions/Reshape_1"},
    {"resnet_v1_50", "resnet_v1_50/SpatialSqueeze", "resnet_v1_50/predictions/Reshape_1"},
    {"resnet_v2_101", "resnet_v2_101/SpatialSqueeze", "resnet_v2_101/predictions/Reshape_1"},
    {"resnet_v2_152", "resnet_v2_152/SpatialSqueeze", "resnet_v2_152/predictions/Reshape_1"},
    {"resnet_v2_200", "resnet_v2_200/SpatialSqueeze", "resnet_v2_200/predictions/Reshape_1"},
    {"resnet_v2_50", "resnet_v2_50/SpatialSqueeze", "resnet_v2_50/predictions/Reshape_1"},
    {"vgg_16", "vgg_16/fc8/squeezed", "predictions"},
    {"vgg_19", "vgg_19/fc8/squeezed", "predictions"},
    {"vgg_a", "vgg_a/fc8/squeezed", "predictions"},
};

TEST(OutputNames, AreThoseOfSlim) {
  for (const auto& [net, logits, predictions] : kRows) {
    EXPECT_NE(nets::TryFindNet(net), nullptr) << net;
    EXPECT_EQ(OutputNamesOf(net).logits, logits) << net;
    EXPECT_EQ(OutputNamesOf(net).predictions, predictions) << net;
  }
  EXPECT_EQ(OutputNamesOf("mnist_keras").logits, "logits");
}

}  // namespace
}  // namespace carole::exporting
