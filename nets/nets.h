// The table of nets that this program can train, and BuildModel(), which builds the graph of one.
// README.md explains how a net is written and how to add one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nets/layers/model.h"

namespace carole::nets {

class NetBuilder;

// The function that builds a net on images (N,C,H,W). Its variables and end points have the names
// and the order of the program that the net comes from: TF-Slim, TensorFlow's official models or
// Keras, whose checkpoints can be read; or torchvision.
using BuildNet = NetOutput(NetBuilder& b, ValueId images);

BuildNet LeNet, CifarNet, AlexNetV2, OverFeat;
BuildNet VggA, Vgg16, Vgg19, Vgg416;
BuildNet InceptionV1, InceptionV2, InceptionV3, InceptionV4, InceptionResnetV2;
BuildNet ResnetV1_50, ResnetV1_101, ResnetV1_152, ResnetV1_200;
BuildNet ResnetV2_50, ResnetV2_101, ResnetV2_152, ResnetV2_200;
BuildNet Resnet50;
BuildNet ImagenetResnetV2_18, ImagenetResnetV2_34, ImagenetResnetV2_50;
BuildNet ImagenetResnetV2_101, ImagenetResnetV2_152, ImagenetResnetV2_200;
BuildNet MnistKeras, MnistKerasDist;
BuildNet NasNetCifar, NasNetMobile, NasNetLarge, PnasNetMobile, PnasNetLarge;
BuildNet MobilenetV1_100, MobilenetV1_075, MobilenetV1_050, MobilenetV1_025;
BuildNet MobilenetV2_100, MobilenetV2_140, MobilenetV2_035;
BuildNet MobilenetV3Large, MobilenetV3Small;
BuildNet MobilenetV3LargeMinimalistic, MobilenetV3SmallMinimalistic;
BuildNet MobilenetEdgeTpu, MobilenetEdgeTpu_075;

struct NetEntry {
  std::string_view name;
  BuildNet* build;
  int64_t image_size;             // default height and width in pixels
  int64_t min_image_size = 1;     // the smallest size that works
  int64_t max_image_size = 4096;  // the largest; small if the head needs a certain size of the map
  int64_t channels = 3;           // default
  int64_t num_classes = 1000;     // default
  int64_t num_parameters;         // trainable parameters with the defaults of this row
  // The default preprocessing, a row of io/preprocessing/preprocessing.h. It is the one that
  // TF-Slim uses for this net. For nets that TF-Slim assigns none, it is the one that its users
  // choose.
  std::string_view preprocessing;
};

// clang-format off
inline constexpr NetEntry kNets[] = {
    {.name = "lenet", .build = LeNet, .image_size = 28, .min_image_size = 4, .channels = 1,
     .num_classes = 10, .num_parameters = 3'274'634, .preprocessing = "lenet"},
    {.name = "cifarnet", .build = CifarNet, .image_size = 32, .min_image_size = 4,
     .num_classes = 10, .num_parameters = 1'756'426, .preprocessing = "cifarnet"},
    {.name = "alexnet_v2", .build = AlexNetV2, .image_size = 224, .min_image_size = 195,
     .max_image_size = 226, .num_parameters = 50'303'912, .preprocessing = "vgg"},
    {.name = "overfeat", .build = OverFeat, .image_size = 231, .min_image_size = 231,
     .max_image_size = 262, .num_parameters = 145'704'424, .preprocessing = "vgg"},
    {.name = "vgg_a", .build = VggA, .image_size = 224, .min_image_size = 224,
     .max_image_size = 255, .num_parameters = 132'863'336, .preprocessing = "vgg"},
    {.name = "vgg_16", .build = Vgg16, .image_size = 224, .min_image_size = 224,
     .max_image_size = 255, .num_parameters = 138'357'544, .preprocessing = "vgg"},
    {.name = "vgg_19", .build = Vgg19, .image_size = 224, .min_image_size = 224,
     .max_image_size = 255, .num_parameters = 143'667'240, .preprocessing = "vgg"},
    {.name = "vgg_416", .build = Vgg416, .image_size = 224, .min_image_size = 224,
     .max_image_size = 255, .num_parameters = 577'894'184, .preprocessing = "vgg"},
    {.name = "inception_v1", .build = InceptionV1, .image_size = 224, .min_image_size = 193,
     .max_image_size = 224, .num_parameters = 6'617'624, .preprocessing = "inception"},
    {.name = "inception_v2", .build = InceptionV2, .image_size = 224, .max_image_size = 256,
     .num_parameters = 11'178'336, .preprocessing = "inception"},
    {.name = "inception_v3", .build = InceptionV3, .image_size = 299, .min_image_size = 107,
     .max_image_size = 346, .num_parameters = 27'143'152, .preprocessing = "inception"},
    {.name = "inception_v4", .build = InceptionV4, .image_size = 299, .min_image_size = 107,
     .num_parameters = 46'006'800, .preprocessing = "inception"},
    {.name = "inception_resnet_v2", .build = InceptionResnetV2, .image_size = 299,
     .min_image_size = 107, .num_parameters = 59'179'952, .preprocessing = "inception"},
    {.name = "resnet_v1_50", .build = ResnetV1_50, .image_size = 224, .num_parameters = 25'557'032,
     .preprocessing = "vgg"},
    {.name = "resnet_v1_101", .build = ResnetV1_101, .image_size = 224,
     .num_parameters = 44'549'160, .preprocessing = "vgg"},
    {.name = "resnet_v1_152", .build = ResnetV1_152, .image_size = 224,
     .num_parameters = 60'192'808, .preprocessing = "vgg"},
    {.name = "resnet_v1_200", .build = ResnetV1_200, .image_size = 224,
     .num_parameters = 64'673'832, .preprocessing = "vgg"},
    {.name = "resnet_v2_50", .build = ResnetV2_50, .image_size = 224, .num_parameters = 25'568'360,
     .preprocessing = "vgg"},
    {.name = "resnet_v2_101", .build = ResnetV2_101, .image_size = 224,
     .num_parameters = 44'577'896, .preprocessing = "vgg"},
    {.name = "resnet_v2_152", .build = ResnetV2_152, .image_size = 224,
     .num_parameters = 60'236'904, .preprocessing = "vgg"},
    {.name = "resnet_v2_200", .build = ResnetV2_200, .image_size = 224,
     .num_parameters = 64'726'120, .preprocessing = "vgg"},
    {.name = "resnet50", .build = Resnet50, .image_size = 224, .num_parameters = 25'557'032,
     .preprocessing = "vgg"},
    {.name = "imagenet_resnet_v2_18", .build = ImagenetResnetV2_18, .image_size = 224,
     .num_classes = 1001, .num_parameters = 11'692'329, .preprocessing = "imagenet_resnet"},
    {.name = "imagenet_resnet_v2_34", .build = ImagenetResnetV2_34, .image_size = 224,
     .num_classes = 1001, .num_parameters = 21'800'489, .preprocessing = "imagenet_resnet"},
    {.name = "imagenet_resnet_v2_50", .build = ImagenetResnetV2_50, .image_size = 224,
     .num_classes = 1001, .num_parameters = 25'551'401, .preprocessing = "imagenet_resnet"},
    {.name = "imagenet_resnet_v2_101", .build = ImagenetResnetV2_101, .image_size = 224,
     .num_classes = 1001, .num_parameters = 44'543'529, .preprocessing = "imagenet_resnet"},
    {.name = "imagenet_resnet_v2_152", .build = ImagenetResnetV2_152, .image_size = 224,
     .num_classes = 1001, .num_parameters = 60'187'177, .preprocessing = "imagenet_resnet"},
    {.name = "imagenet_resnet_v2_200", .build = ImagenetResnetV2_200, .image_size = 224,
     .num_classes = 1001, .num_parameters = 64'668'201, .preprocessing = "imagenet_resnet"},
    {.name = "mnist_keras", .build = MnistKeras, .image_size = 28, .channels = 1,
     .num_classes = 10, .num_parameters = 407'050, .preprocessing = "mnist_keras"},
    {.name = "mnist_keras_dist", .build = MnistKerasDist, .image_size = 28, .min_image_size = 18,
     .channels = 1, .num_classes = 10, .num_parameters = 93'322, .preprocessing = "mnist_keras"},
    {.name = "nasnet_cifar", .build = NasNetCifar, .image_size = 32, .min_image_size = 9,
     .num_classes = 10, .num_parameters = 4'978'036, .preprocessing = "cifarnet"},
    {.name = "nasnet_mobile", .build = NasNetMobile, .image_size = 224, .min_image_size = 67,
     .num_parameters = 7'701'218, .preprocessing = "inception"},
    {.name = "nasnet_large", .build = NasNetLarge, .image_size = 331, .min_image_size = 67,
     .num_parameters = 93'320'934, .preprocessing = "inception"},
    {.name = "pnasnet_mobile", .build = PnasNetMobile, .image_size = 224, .min_image_size = 67,
     .num_parameters = 7'477'263, .preprocessing = "inception"},
    {.name = "pnasnet_large", .build = PnasNetLarge, .image_size = 331, .min_image_size = 67,
     .num_parameters = 90'643'884, .preprocessing = "inception"},
    {.name = "mobilenet_v1", .build = MobilenetV1_100, .image_size = 224, .max_image_size = 256,
     .num_parameters = 4'231'976, .preprocessing = "inception"},
    {.name = "mobilenet_v1_075", .build = MobilenetV1_075, .image_size = 224,
     .max_image_size = 256, .num_parameters = 2'585'560, .preprocessing = "inception"},
    {.name = "mobilenet_v1_050", .build = MobilenetV1_050, .image_size = 224,
     .max_image_size = 256, .num_parameters = 1'331'592, .preprocessing = "inception"},
    {.name = "mobilenet_v1_025", .build = MobilenetV1_025, .image_size = 224,
     .max_image_size = 256, .num_parameters = 470'072, .preprocessing = "inception"},
    {.name = "mobilenet_v2", .build = MobilenetV2_100, .image_size = 224,
     .num_parameters = 3'504'872, .preprocessing = "inception"},
    {.name = "mobilenet_v2_140", .build = MobilenetV2_140, .image_size = 224,
     .num_parameters = 6'108'776, .preprocessing = "inception"},
    {.name = "mobilenet_v2_035", .build = MobilenetV2_035, .image_size = 224,
     .num_parameters = 1'677'128, .preprocessing = "inception"},
    {.name = "mobilenet_v3_large", .build = MobilenetV3Large, .image_size = 224,
     .num_parameters = 5'483'032, .preprocessing = "inception"},
    {.name = "mobilenet_v3_small", .build = MobilenetV3Small, .image_size = 224,
     .num_parameters = 2'542'856, .preprocessing = "inception"},
    {.name = "mobilenet_v3_large_minimalistic", .build = MobilenetV3LargeMinimalistic,
     .image_size = 224, .num_parameters = 3'924'288, .preprocessing = "inception"},
    {.name = "mobilenet_v3_small_minimalistic", .build = MobilenetV3SmallMinimalistic,
     .image_size = 224, .num_parameters = 2'044'736, .preprocessing = "inception"},
    {.name = "mobilenet_edgetpu", .build = MobilenetEdgeTpu, .image_size = 224,
     .num_parameters = 4'091'432, .preprocessing = "inception"},
    {.name = "mobilenet_edgetpu_075", .build = MobilenetEdgeTpu_075, .image_size = 224,
     .num_parameters = 2'988'160, .preprocessing = "inception"},
};
// clang-format on

// Returns the row of this name, or nullptr if there is none.
const NetEntry* TryFindNet(std::string_view name);
// Returns the row of this name. If there is none, throws UsageError, which suggests the nearest
// name.
const NetEntry& FindNet(std::string_view name);

// Builds the graph of a net: forward operations and losses. It is not fused and not differentiated
// yet. Throws UsageError, which names the values that work, if the net does not support the image
// size, the channels, the number of classes, the batch size or the label smoothing.
Model BuildModel(const NetEntry& net, const ModelOptions& options);

// Returns the names of the variables of each classifier: the last layer before the logits, and in
// training before the auxiliary logits. The last dimension of such a variable is the number of
// classes. Call it before the graph is fused.
std::vector<std::vector<std::string>> ClassifierVariables(const Model& model);

}  // namespace carole::nets
