// The training commands of the programs whose jobs run here unchanged, as their users wrote them.
// Only data and length are smaller.
#include <nlohmann/json.hpp>

#include "tests/cli/cli.h"
#include "tests/support/test_data.h"

namespace carole::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class RecipeTest : public CliTest {
 protected:
  // Runs to the end and expects success.
  ProcessResult Train(Words words, int ranks = 1) {
    words.insert(words.begin(), "train");
    return RunOnFewThreads(words, ranks);
  }

  // Runs the evaluator task of a job with these training arguments until no new checkpoint appears.
  ProcessResult Evaluate(Words words) {
    words.insert(words.begin(), {"launch", "--eval_timeout=1",
                                 R"(--tf_config={"cluster": {"chief": ["h0:1"], "worker": ["h1:1"]},
                                     "task": {"type": "evaluator", "index": 0}})",
                                 "--", "train"});
    return RunOnFewThreads(words);
  }

  // Builds TFRecords of synthetic JPEGs in ImageNet's format and returns their folder.
  std::string BuildSyntheticImagenet() {
    const std::string folder = folder_ / "imagenet";
    RunToEnd({"dataset", "build", "--dataset_name=synthetic", "--num_images=16", "--num_classes=4",
              "--image_width=96", "--train_shards=1", "--validation_shards=1", "--dataset_dir",
              folder});
    return folder;
  }

 private:
  static ProcessResult RunOnFewThreads(Words words, int ranks = 1) {
    words.insert(words.end(), {"--threads=1", "--num_preprocessing_threads=1"});
    return RunToEnd(words, ranks);
  }
};

// The documented command of train_image_classifier. Flags of parameter servers are accepted and
// explained.
TEST_F(RecipeTest, TrainImageClassifier) {
  const ProcessResult run =
      Train({"--train_dir=" + train_dir_, "--dataset_dir=" + data_dir_, "--dataset_name=mnist",
             "--dataset_split_name=train", "--model_name=lenet", "--master=", "--worker_replicas=2",
             "--num_ps_tasks=1", "--num_clones=1", "--noclone_on_cpu", "--task=0",
             "--num_readers=4", "--quantize_delay=-1", "--sync_replicas=False", "--batch_size=32",
             "--max_number_of_steps=3"});
  for (const char* text :
       {"rmsprop, rmsprop_momentum 0.9, rmsprop_decay 0.9, opt_epsilon 1, weight decay 4e-05",
        "0.01, times 0.94 every 3750 steps (decay_steps); its epochs have 60000 samples",
        "32 local, 32 global", "--num_ps_tasks: there are no parameter servers", "3 steps"})
    EXPECT_THAT(run.err, HasSubstr(text));
}

// TensorFlow 1.4 read its flags with argparse; later versions read them with absl, which also
// accepts one dash.
TEST_F(RecipeTest, TrainImageClassifierAcceptsWhatItsParsersAccepted) {
  const ProcessResult run = Train(
      {"--train_d=" + train_dir_, "--dataset_d", data_dir_, "--dataset_n=mnist", "--model=lenet",
       "--batch", "16", "--max_number=2", "--clone", "--sync_replicas", "False",
       "--ignore_missing=t", "-log_every_n_steps=1", "--trainable_scopes=LeNet/fc3,LeNet/fc4"});
  for (const char* text : {"16 local, 16 global", "2 steps", "global step 1: loss"})
    EXPECT_THAT(run.err, HasSubstr(text));
  EXPECT_THAT(Carole({"checkpoint", "inspect", train_dir_}).out,
              HasSubstr("--trainable_scopes=LeNet/fc3,LeNet/fc4"));
  EXPECT_TRUE(
      FailsWith(Carole({"train", "--learning_rate_d=fixed"}), 64,
                {"--learning_rate_d: is ambiguous: it may stand for --learning_rate_decay_type, "
                 "--learning_rate_decay_factor"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--sync_replicas=maybe"}), 64, {"--sync_replicas"}));
}

// The documented command of eval_image_classifier, with its other flags.
TEST_F(RecipeTest, EvalImageClassifier) {
  Train({"--train_dir=" + train_dir_, "--dataset_dir=" + data_dir_, "--dataset_name=mnist",
         "--model_name=lenet", "--alsologtostderr", "--v=0", "--max_number_of_steps=1"});
  const ProcessResult eval = RunToEnd(
      {"eval", "--alsologtostderr", "--checkpoint_path=" + train_dir_, "--dataset_dir=" + data_dir_,
       "--dataset_name=mnist", "--dataset_split_name=test", "--model_name=lenet",
       "--master=", "--batch_size=30", "--max_num_batches=2", "--num_preprocessing_threads=1",
       "--labels_offset=0", "--preprocessing_name=lenet", "--eval_image_size=28", "--noquantize",
       "--use_grayscale=false", "--json", "--eval_dir=" + (folder_ / "eval")});
  EXPECT_THAT(eval.out, HasSubstr("\"samples\":60"));
  EXPECT_FALSE(std::filesystem::is_empty(folder_ / "eval"));
}

// Color JPEGs become one channel with fractional values. Prediction does the same.
TEST_F(RecipeTest, TrainImageClassifierInGrayscale) {
  const std::string data = BuildSyntheticImagenet();
  const Words input = {"--dataset_name=synthetic", "--dataset_dir=" + data, "--use_grayscale",
                       "--model_name=cifarnet", "--preprocessing_name=lenet"};
  Words train = input, eval = input;
  train.insert(train.end(), {"--train_dir=" + train_dir_, "--batch_size=4", "--max_number=1"});
  EXPECT_THAT(Train(train).err,
              AllOf(HasSubstr("images 32x32x1"), HasSubstr("preprocessing lenet, as fp32")));
  eval.insert(eval.begin(), "eval");
  eval.insert(eval.end(), {"--checkpoint_path=" + train_dir_,
                           "--eval_dir=", "--dataset_split_name=validation"});
  RunToEnd(eval);
  const std::string tf = folder_ / "tf/model.ckpt";
  RunToEnd({"checkpoint", "convert", train_dir_, tf});
  const auto predict = [&](const Words& words) {
    Words all = {"predict", TestData() + "/io_images/landscape_420.jpg", "--json"};
    all.insert(all.end(), words.begin(), words.end());
    const auto predicted = nlohmann::json::parse(RunToEnd(all).out);
    return predicted["predictions"][0]["probability"].get<double>();
  };
  EXPECT_EQ(predict({"--checkpoint_path=" + train_dir_}),
            predict({"--checkpoint_path=" + tf, "--model_name=cifarnet", "--use_grayscale",
                     "--num_classes=5", "--preprocessing_name=lenet"}));
}

// The UAI platform's slim example. Its container adds --data_dir, --output_dir and --num_gpus.
TEST_F(RecipeTest, TrainImageClassifierOnThePlatform) {
  const ProcessResult run =
      Train({"--data_dir=" + data_dir_, "--output_dir=" + train_dir_, "--work_dir=/data",
             "--log_dir=" + (folder_ / "log"), "--num_gpus=2", "--dataset_name=mnist",
             "--model_name=lenet", "--max_step=2", "--learning_rate_decay_type=polynomial"},
            2);
  EXPECT_THAT(run.err, HasSubstr("32 local, 64 global"));
  // Ranks count as replicas: two epochs of 60000 / 64 steps.
  EXPECT_THAT(run.err, HasSubstr("0.01, polynomial to 0.0001 in 1875 steps (decay_steps)"));
}

// The platform passes --max_step=0 if its user sets no limit.
TEST_F(RecipeTest, MaxStepOfThePlatformRemovesNoLimit) {
  Words words = {"--data_dir=" + data_dir_, "--output_dir=" + train_dir_, "--dataset_name=mnist",
                 "--model_name=lenet",      "--max_number_of_steps=2",    "--max_step=0"};
  EXPECT_THAT(Train(words).err, HasSubstr("length     2 steps\n"));
  words.back() = "--max_step=9";
  EXPECT_THAT(Train(words).err, HasSubstr("length     2 steps\n"));
}

// An evaluator parses the training arguments as training does, and evaluates the other split.
TEST_F(RecipeTest, EvaluatorOfTrainImageClassifier) {
  std::ofstream(folder_ / "run.toml") << "use_grayscale = true\nbatch-size = 4\n";
  const Words words = {"--config",
                       folder_ / "run.toml",
                       "-dataset_d=" + BuildSyntheticImagenet(),
                       "--train_dir=/nowhere",
                       "--train_d",
                       train_dir_,
                       "--model=cifarnet",
                       "--preprocessing=inception",
                       "--max_number=1"};
  EXPECT_THAT(Train(words).err, HasSubstr("images 32x32x1, 1001 classes"));
  const ProcessResult evaluated = Evaluate(words);
  EXPECT_THAT(evaluated.err, HasSubstr(train_dir_ + "/model.ckpt-1.h5, step 1"));
  EXPECT_THAT(evaluated.out, HasSubstr("(1 samples)"));
  EXPECT_FALSE(std::filesystem::is_empty(train_dir_ + "/eval"));
}

TEST_F(RecipeTest, EvaluatorOfMnist) {
  const Words words = {"--recipe=mnist", "--data_dir=" + data_dir_, "--output_dir=" + train_dir_,
                       "--max_step=1"};
  Train(words);
  EXPECT_THAT(Evaluate(words).out, HasSubstr("(100 samples)"));
  EXPECT_FALSE(std::filesystem::is_empty(train_dir_ + "/eval"));
}

TEST_F(RecipeTest, EvaluatorOfImagenetMain) {
  const Words words = {"--recipe=imagenet_main",     "--resnet_size=18",
                       "--train-batch-size=2",       "--data_dir=" + BuildSyntheticImagenet(),
                       "--output_dir=" + train_dir_, "--max_step=1",
                       "--epochs_per_eval=0"};
  Train(words);
  EXPECT_THAT(Evaluate(words).err, HasSubstr(train_dir_ + "/model.ckpt-1.h5, step 1"));
  EXPECT_FALSE(std::filesystem::is_empty(train_dir_ + "/eval"));
}

TEST_F(RecipeTest, ImagenetMain) {
  const std::string data = BuildSyntheticImagenet();
  const ProcessResult run = Train(
      {"--recipe=imagenet_main", "--train-batch-size=4", "--resnet_size=18", "--data_dir=" + data,
       "--output_dir=" + train_dir_, "--num_gpus=2", "--data-format=channels_first",
       "--variable-strategy=GPU", "--sync", "--num-intra-threads=1", "--train-epochs=2",
       "--eval-batch-size=2", "--max_step=2", "--epochs_per_eval=0"},
      2);
  for (const char* text :
       {"imagenet_resnet_v2_18: 11692329 parameters, images 224x224x3, 1001 classes",
        "2 local, 4 global", "momentum, momentum 0.9, weight decay 0.0001",
        "0.1, times 0.1 after step 9608752, times 0.01 after step 19217505",
        "preprocessing imagenet_resnet", "--recipe=imagenet_main --helpfull",
        "--variable_strategy: each rank holds all variables"})
    EXPECT_THAT(run.err, HasSubstr(text));
  EXPECT_TRUE(FailsWith(Carole({"train", "--recipe=imagenet_main", "--resnet_size=42"}), 64,
                        {"--resnet_size", "got 42, want one of 18,34,50"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--recipe=imagenet_main", "--train-batch-size=3",
                                "--data_dir=" + data, "--output_dir=" + train_dir_, "--threads=1"},
                               2),
                        64, {"--train_batch_size", "multiple of 2"}));
}

// argparse accepted abbreviations among the flags of that program.
TEST_F(RecipeTest, ImagenetMainAcceptsAbbreviatedFlags) {
  const ProcessResult run =
      Train({"--recipe", "imagenet_main", "--train-b=4", "--learning", "0.25", "--resnet=18",
             "--data_d=" + BuildSyntheticImagenet(), "--output=" + train_dir_, "--train-e=2",
             "--max_step=1", "--epochs=0"});
  for (const char* text : {"imagenet_resnet_v2_18", "4 local, 4 global", "0.25, times"})
    EXPECT_THAT(run.err, HasSubstr(text));
  EXPECT_TRUE(FailsWith(
      Carole({"train", "--recipe=imagenet_main", "--batch-norm=1"}), 64,
      {"--batch_norm: is ambiguous: it may stand for --batch_norm_decay, --batch_norm_epsilon"}));
  EXPECT_TRUE(FailsWith(Carole({"train", "--train_b=4"}), 64,
                        {"no such flag; did you mean --train_batch_size?"}));
  EXPECT_TRUE(FailsWith(
      Carole({"train", "--num_epochs=4"}), 64,
      {"--num_epochs: is short for --num_epochs_per_decay", "did you mean --train_epochs?"}));
  WriteText(folder_ / "recipe.toml", "recipe = \"imagenet_main\"");
  EXPECT_TRUE(FailsWith(Carole({"train", "--config", folder_ / "recipe.toml", "--train_b=4"}), 64,
                        {"--output_dir: missing"}))
      << "a recipe in the file also allows abbreviations";
}

// The Keras programs read raw files.
TEST_F(RecipeTest, MnistFromRawFiles) {
  const ProcessResult run = Train({"--recipe=mnist", "--data_dir=" + (folder_ / "raw"),
                                   "--output_dir=" + train_dir_, "--train_epochs=1"});
  for (const char* text :
       {"mnist_keras: 407050 parameters", "32 local, 32 global",
        "adam, adam_beta1 0.9, adam_beta2 0.999, opt_epsilon 1e-07\n", "0.001, fixed", "10 steps"})
    EXPECT_THAT(run.err, HasSubstr(text));
  EXPECT_THAT(run.err, ContainsRegex("mnist train: 300 samples in " + (folder_ / "raw") +
                                     "/records-[0-9a-f]{16}"));
  const ProcessResult eval = RunToEnd({"eval", "--recipe=mnist", "--data_dir=" + (folder_ / "raw"),
                                       "--checkpoint_path=" + train_dir_, "--eval_dir=", "--json"});
  EXPECT_THAT(eval.out, HasSubstr("\"samples\":100"));
}

// Raw files of both forms, in one folder or replaced: each version is converted once.
TEST_F(RecipeTest, RecordsBelongToTheirRawFiles) {
  const std::string raw = folder_ / "raw", npz = folder_ / "other.npz";
  std::filesystem::copy(TestData() + "/npz/mnist.npz", npz);
  int runs = 0;
  const auto train = [&](const std::string& data) {
    const std::string run = train_dir_ + std::to_string(++runs);
    return Train({"--recipe=mnist", "--data_dir=" + data, "--output_dir=" + run, "--max_step=1"}, 2)
        .err;
  };
  EXPECT_THAT(train(raw), HasSubstr("mnist train: 300 samples in"));
  EXPECT_THAT(train(raw), ::testing::Not(HasSubstr("writing their TFRecords")));
  WriteDigits(raw, 200, 50);
  EXPECT_THAT(train(raw), HasSubstr("mnist train: 200 samples in"));
  EXPECT_THAT(train(npz), HasSubstr("mnist train: 40 samples in"));
  std::filesystem::copy(npz, folder_ / "same.npz");
  EXPECT_THAT(train(folder_ / "same.npz"), HasSubstr("writing their TFRecords"));
}

TEST_F(RecipeTest, RawFilesMayBeAddedLater) {
  const std::string raw = folder_ / "raw", images = raw + "/t10k-images-idx3-ubyte";
  std::filesystem::rename(images, folder_ / "away");
  const Words words = {"--recipe=mnist", "--data_dir=" + raw, "--output_dir=" + train_dir_,
                       "--max_step=1", "--eval_every=1"};
  Words train = words;
  train.insert(train.begin(), "train");
  EXPECT_TRUE(FailsWith(Carole(train), 65, {"t10k-images"}));
  std::filesystem::rename(folder_ / "away", images);
  EXPECT_THAT(Train(words).err, HasSubstr("(100 samples)"));
}

// The folder holds a user's own records as well as raw files.
TEST_F(RecipeTest, RecordsWinOverRawFiles) {
  std::filesystem::copy(folder_ / "raw", data_dir_);
  EXPECT_THAT(Train({"--recipe=mnist", "--data_dir=" + data_dir_, "--output_dir=" + train_dir_,
                     "--max_step=1"})
                  .err,
              HasSubstr("mnist train: 300 samples in " + data_dir_ + ","));
}

// Keras's mnist.npz with 40 training and 10 test images. The original program wrote mnist.h5.
TEST_F(RecipeTest, MnistFromKerasFile) {
  const std::string data = folder_ / "keras";
  std::filesystem::create_directory(data);
  std::filesystem::copy(TestData() + "/npz/mnist.npz", data);
  EXPECT_THAT(Carole({"doctor", "--dataset_name=mnist", "--dataset_dir=" + data}).out,
              HasSubstr(data + ": raw files; training converts them to TFRecords once"));
  const ProcessResult run = Train({"--recipe=mnist", "--data_dir=" + data + "/mnist.npz",
                                   "--output_dir=" + train_dir_, "--train_epochs=1"});
  EXPECT_THAT(run.err, HasSubstr("mnist train: 40 samples in " + data + "/records"));
  EXPECT_EQ(DigestOf(train_dir_ + "/mnist.h5"), DigestOf(train_dir_));
  const ProcessResult eval =
      RunToEnd({"eval", "--recipe=mnist", "--data_dir=" + data,
                "--checkpoint_path=" + train_dir_ + "/mnist.h5", "--eval_dir=", "--json"});
  EXPECT_THAT(eval.out, HasSubstr("\"samples\":10"));
}

// The original's one process had 32 images per step on any number of GPUs. Three ranks cannot
// divide 32 evenly.
TEST_F(RecipeTest, RanksDivideTheBatchOfMnist) {
  const Words words = {"--recipe=mnist", "--data_dir=" + data_dir_, "--max_step=1"};
  const auto batch = [&](int ranks, const char* flag) {
    Words all = words;
    all.insert(all.end(), {"--output_dir=" + train_dir_ + std::to_string(ranks) + flag, flag});
    return Train(all, ranks).err;
  };
  EXPECT_THAT(batch(2, "--num_gpus=2"), HasSubstr("16 local, 32 global"));
  EXPECT_THAT(batch(3, "--num_gpus=3"), HasSubstr("10 local, 30 global"));
  EXPECT_THAT(batch(2, "--batch_size=8"), HasSubstr("8 local, 16 global"));
  // The flag itself starts the ranks if mpirun did not. It may start more ranks than there are
  // cores.
  EXPECT_THAT(batch(1, "--num_clones=2"), AllOf(HasSubstr("[launch] starts 2 ranks: mpirun "),
                                                HasSubstr("16 local, 32 global")));
  const ProcessResult odd = Carole(
      {"train", "--recipe=mnist", "--data_dir=" + data_dir_, "--train_batch_size=9", "--threads=1"},
      2);
  EXPECT_TRUE(FailsWith(odd, 64, {"--train_batch_size", "multiple of 2"}));
  EXPECT_TRUE(ReportsOnce(odd));
  EXPECT_TRUE(
      FailsWith(Carole(TrainWords(train_dir_, {"--ranks=3"}), 2), 64,
                {"--ranks: is not the number of started ranks: got 3, want 2, as Open MPI"}));
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--ranks=1025"})), 64,
                        {"--ranks: too many for one machine: got 1025, want at most 1024"}));
  EXPECT_TRUE(FailsWith(RunProcess(WithEnvironment(
                            {"PATH=/nowhere"}, CaroleWords(TrainWords(train_dir_, {"--ranks=2"})))),
                        78, {"mpirun: not found in PATH; install the package openmpi-bin"}));
}

// The length is 1000 steps, even if the ranks have seen five epochs earlier.
TEST_F(RecipeTest, LengthOfMnistDist) {
  const ProcessResult run =
      Carole({"train", "--recipe=mnist_dist", "--data_dir=" + data_dir_,
              "--output_dir=" + train_dir_, "--max_step=0", "--max_time=0.1", "--threads=1"},
             2);
  EXPECT_EQ(run.exit_code, 75) << run.err;
  EXPECT_THAT(run.err, HasSubstr("length     1000 steps\n"));
}

TEST_F(RecipeTest, MnistDist) {
  const ProcessResult run = Train({"--recipe=mnist_dist", "--data_dir=" + data_dir_,
                                   "--output_dir=" + train_dir_, "--num_gpus=0", "--max_step=2"},
                                  2);
  for (const char* text :
       {"mnist_keras_dist: 93322 parameters", "64 local, 128 global",
        "adam, adam_beta1 0.9, adam_beta2 0.999, opt_epsilon 1e-08\n", "2 steps"})
    EXPECT_THAT(run.err, HasSubstr(text));
}

// Recipes record summaries by steps if their programs did so. Help shows their defaults.
TEST_F(RecipeTest, SummariesByTimeOrSteps) {
  EXPECT_THAT(Carole({"train", "--helpfull", "--recipe=vgg416"}).out,
              AllOf(ContainsRegex("--log_every_n_steps INT>=0[^[]*\\[default:[ \n]+5\\]"),
                    ContainsRegex("--model_name TEXT[^[]*\\[default:[ \n]+vgg_416\\]")));
  for (const auto& [recipe, steps] :
       {std::pair("train_image_classifier", "0"), {"imagenet_main", "100"}, {"mnist_dist", "100"}})
    EXPECT_THAT(Carole({"train", "--helpfull", "--recipe", recipe}).out,
                ContainsRegex("--save_summaries_steps INT>=0 .*\n? *\\[default: " +
                              std::string(steps) + "\\]"));
  EXPECT_THAT(Carole({"train", "--helpfull", "--recipe=imagenet_main"}).out,
              HasSubstr("\nDifferences from UAI's ResNet on ImageNet:\n  imagenet_main  "));
  const ProcessResult by_time =
      Train({"--recipe=mnist_dist", "--data_dir=" + data_dir_, "--output_dir=" + train_dir_,
             "--max_step=3", "--save_summaries_secs=1e-9"});
  EXPECT_THAT(by_time.err, HasSubstr("Recording summary at step 2."));
  EXPECT_THAT(by_time.err,
              HasSubstr("mnist_dist (mnist_dist.py of Keras), 13 defaults; `carole train "
                        "--recipe=mnist_dist --helpfull` says which, and what differs\n"));
}

TEST_F(RecipeTest, FlagsWinOverTheRecipeAndFilesToo) {
  std::ofstream(folder_ / "run.toml") << "recipe = \"mnist\"\nlearning_rate = 0.25\n";
  const ProcessResult run =
      Train({"--config", folder_ / "run.toml", "--data_dir=" + data_dir_,
             "--output_dir=" + train_dir_, "--optimizer=sgd", "--max_step=1"});
  EXPECT_THAT(run.err, ContainsRegex("optimizer  sgd\n"));
  EXPECT_THAT(run.err, HasSubstr("0.25, fixed"));
}

TEST_F(RecipeTest, HugeNumbersOfEpochsEndWithTheSteps) {
  const ProcessResult run =
      RunToEnd(TrainWords(train_dir_, {"--train_epochs=1e30", "--epochs_per_eval=1e30",
                                       "--bucket_mb=1e30", "--max_number_of_steps=2"}));
  EXPECT_THAT(run.err, HasSubstr("2 steps, evaluated every 4611686018427387904\n"));
}

// An epoch of 300 images has 4 steps of 75 images, and also 4 steps of 80, the last one short.
TEST_F(RecipeTest, GivenLengthsWinOverARecipesLengths) {
  const auto length = [&](const std::string& recipe, Words flags) {
    flags.insert(flags.begin(), {"--recipe=" + recipe, "--data_dir=" + data_dir_,
                                 "--output_dir=" + train_dir_, "--max_time=1e-9"});
    flags.insert(flags.begin(), "train");
    const ProcessResult run = Carole(flags);
    EXPECT_EQ(run.exit_code, 75) << run.err;
    std::filesystem::remove_all(train_dir_);
    return run.err;
  };
  EXPECT_THAT(length("mnist_dist", {"--train_epochs=500", "--batch_size=75"}),
              ContainsRegex("length +2000 steps"));
  EXPECT_THAT(length("mnist", {"--max_number_of_steps=1000", "--batch_size=75"}),
              ContainsRegex("length +1000 steps"));
  EXPECT_THAT(
      length("mnist", {"--max_number_of_steps=1000", "--train_epochs=2", "--batch_size=75"}),
      ContainsRegex("length +8 steps"));
  EXPECT_THAT(length("mnist", {"--epochs_per_eval=2", "--batch_size=80"}),
              ContainsRegex("length +20 steps, evaluated every 8"));
  const std::string never =
      length("imagenet_main", {"--dataset_name=mnist", "--model_name=lenet", "--eval_every=0"});
  EXPECT_THAT(never, ContainsRegex("length +300 steps\n"));
}

TEST_F(RecipeTest, UnsupportedFeaturesAreRefused) {
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--quantize"})), 64,
                        {"--quantize", "got true, want false; train has --quantize_delay"}));
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--clone_on_cpu", "--backend=cuda"})), 64,
                        {"--clone_on_cpu, --backend=cuda: both given"}));
  EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {"--train_batch_size=8"})), 64,
                        {"--batch_size, --train_batch_size: both given"}));
}

// Ignored flags still check the types of their values, and texts that are not numbers are refused.
TEST_F(RecipeTest, ValuesThatTheOtherProgramsRefusedAreRefused) {
  for (const auto& [flag, wanted] :
       {std::pair{"--task=x", "got x, want a whole number"},
        {"--clone_on_cpu=maybe", "got maybe, want true or false"},
        {"--num_gpus=-1", "--ranks: got -1, want a whole number of at least 0"},
        {"--data-format=NHWC", "want channels_first or channels_last"},
        {"--variable-strategy=TPU", "got TPU, want CPU or GPU"},
        {"--num-layers=45", "got 45, want a number of layers 6n + 2"},
        {"--batch-norm-decay=inf", "got inf, want net, auto, or a number above 0"},
        {"--learning_rate=", "got nothing, want a number"},
        {"--labels_offset=", "got nothing, want -1000000 to 1000000"},
        {"--batch_size=010", "got 010, want a whole number without"},
        {"--seed=18446744073709551616",
         "got 18446744073709551616, want a whole number of at most 18446744073709551615"},
        {"--final_model=model.ckpt-9.h5", "want NAME.h5, without"},
        {"--final_model=a/b.h5", "want NAME.h5, without"},
        {"--shuffle_block_records=4611686018427387904",
         "got 4611686018427387904, want 0 to 4294967296"}})
    EXPECT_TRUE(FailsWith(Carole(TrainWords(train_dir_, {flag})), 64, {wanted}));
  EXPECT_TRUE(
      FailsWith(Carole(TrainWords(train_dir_, {"--max_number_of_steps=0", "--train_epochs=0"})), 64,
                {"--train_epochs: got 0, want more"}));
}

// 18 images are two steps of an epoch. 0.8^2 is 64 %.
TEST_F(RecipeTest, OwnImagesFitTheLengthOfTheRun) {
  const std::string photos = folder_ / "photos", data = folder_ / "photo_data";
  for (const char* name : {"odd", "even"}) WriteDigitImages(photos + "/" + name, 10);
  RunToEnd(
      {"dataset", "build", "--dataset_name=folder", "--raw_dir", photos, "--dataset_dir", data});
  const ProcessResult run =
      Train({"--recipe=own_images", "--dataset_dir=" + data, "--train_dir=" + train_dir_,
             "--train_image_size=32", "--max_number_of_steps=2"});
  for (const char* text :
       {"adamw", "0.003, cosine to 0 in 2 steps", "batch norm decay 0.8", "evaluated every 10",
        "[train] batch norm: 64 % of the start of its moving statistics is left after 2 steps",
        "[train] accuracy on validation: "})
    EXPECT_THAT(run.err, HasSubstr(text));
  const ProcessResult eval =
      RunToEnd({"eval", "--dataset_dir=" + data, "--checkpoint_path=" + train_dir_, "--eval_dir="});
  EXPECT_THAT(eval.err, AllOf(HasSubstr("mobilenet_v1_025: images 32x32x3, 2 classes"),
                              HasSubstr("[eval] batch norm: 64 %")));
  const ProcessResult predict =
      RunToEnd({"predict", "--checkpoint_path=" + train_dir_, photos + "/odd/3.png"});
  EXPECT_THAT(predict.err, HasSubstr("[predict] batch norm: 64 %"));
  EXPECT_TRUE(FailsWith(Carole({"train", "--recipe=own_images", "--dataset_dir=" + data}), 64,
                        {"--train_dir: missing"}));
}

TEST_F(RecipeTest, ImagenetMainRequiresAnOutputFolder) {
  EXPECT_TRUE(FailsWith(Carole({"train", "--recipe=imagenet_main", "--data_dir=/nowhere"}), 64,
                        {"--output_dir: missing", "--recipe=imagenet_main has no default"}));
}

}  // namespace
}  // namespace carole::testing
