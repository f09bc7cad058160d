// Fine-tuning from the weights of another run, evaluation during and after training, prediction.
#include <nlohmann/json.hpp>

#include "io/image/exif.h"
#include "tests/cli/cli.h"
#include "tests/io/image/exif_bytes.h"

namespace carole::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class FineTuningTest : public CliTest {
 protected:
  ProcessResult Train(const std::string& train_dir, const Words& more, int ranks = 1) {
    return RunToEnd(TrainWords(train_dir, more), ranks);
  }
};

TEST_F(FineTuningTest, RestoresWhatFitsAndTrainsTheRest) {
  Train(folder_ / "first", {"--max_number_of_steps=2"});
  const Words tune = {"--checkpoint_path=" + (folder_ / "first"),
                      "--checkpoint_exclude_scopes=LeNet/fc4, LeNet/conv1/b",
                      "--trainable_scopes=LeNet/fc4", "--max_number_of_steps=2"};
  const ProcessResult run = Train(train_dir_, tune, 2);
  EXPECT_THAT(run.err, ContainsRegex("fine-tuning from .*model.ckpt-2.h5: 5 variables restored"));
  EXPECT_THAT(run.err,
              HasSubstr("3 variables excluded by --checkpoint_exclude_scopes: LeNet/conv1/biases, "
                        "LeNet/fc4/weights, LeNet/fc4/biases"));
  RunToEnd({"checkpoint", "convert", folder_ / "first", folder_ / "tf/model.ckpt"});
  Words from_tf = tune;
  from_tf[0] = "--checkpoint_path=" + (folder_ / "tf/model.ckpt");
  EXPECT_THAT(Train(folder_ / "tuned", from_tf).err,
              HasSubstr("tf/model.ckpt: 5 variables restored"));
  const ProcessResult fresh = Train(folder_ / "fresh run", {tune[1], "--max_number_of_steps=1"});
  EXPECT_THAT(fresh.err,
              HasSubstr("--checkpoint_exclude_scopes: has no effect without --checkpoint_path"));
  EXPECT_THAT(fresh.err,
              HasSubstr("carole predict --checkpoint_path='" + (folder_ / "fresh run'")));
  EXPECT_THAT(RunToEnd(EvalWords(folder_ / "fresh run", {"--eval_dir="})).err,
              HasSubstr("carole predict --checkpoint_path='" + (folder_ / "fresh run'")));
  const ProcessResult again = Train(train_dir_, tune);
  EXPECT_THAT(again.err, HasSubstr("Ignoring --checkpoint_path because a checkpoint already"));
  const ProcessResult mistyped = Train(
      folder_ / "mistyped",
      {tune[0], "--checkpoint_exclude_scopes=LeNet/fc4,LeNet/Logits", "--max_number_of_steps=1"});
  EXPECT_THAT(mistyped.err, HasSubstr("--checkpoint_exclude_scopes: no variable has the prefix "
                                      "LeNet/Logits\n"));
  const ProcessResult unqualified =
      Train(folder_ / "unqualified",
            {tune[0], "--checkpoint_exclude_scopes=fc4", "--max_number_of_steps=1"});
  EXPECT_THAT(unqualified.err, HasSubstr("prefix fc4 (did you mean LeNet/fc4?)"));
}

// Another number of classes needs no flag, for a checkpoint of any program. Everything else that
// does not fit is an error, and a run never resumes without some of its weights.
TEST_F(FineTuningTest, LeavesOutAClassifierOfOtherClasses) {
  const std::string first = folder_ / "first", tf = folder_ / "tf/model.ckpt-2";
  Train(first, {"--max_number_of_steps=2"});
  RunToEnd({"checkpoint", "convert", first, tf});
  const Words more = {"--labels_offset=-2", "--max_number_of_steps=1"};  // two classes more
  for (const std::string& path : {first, tf, tf + ".meta", folder_ / "tf/checkpoint"}) {
    WriteText(tf + ".meta", "the graph, which is not read");
    const std::string train_dir =
        folder_ / ("from " + std::filesystem::path(path).filename().string());
    const ProcessResult run = Train(train_dir, {more[0], more[1], "--checkpoint_path=" + path});
    EXPECT_THAT(run.err, HasSubstr("6 variables restored: LeNet/conv1/weights"));
    EXPECT_THAT(run.err,
                HasSubstr("classifier left out (10 classes in the file, 12 in the data set): "
                          "LeNet/fc4/weights, LeNet/fc4/biases\n"));
    EXPECT_THAT(run.err, ::testing::Not(HasSubstr("fresh weights")));
  }
  EXPECT_TRUE(
      FailsWith(Carole(TrainWords(first, more)), 65, {"got 12 classes in the data, want 10"}));
  EXPECT_TRUE(FailsWith(
      Carole(TrainWords(folder_ / "large", {"--checkpoint_path=" + first, "--train_image_size=32",
                                            "--max_number_of_steps=1"})),
      65, {"LeNet/fc3/weights (file [3136,1024], net [4096,1024])"}));
}

// Empty entries name no variable, and the last of several lists wins, as with other flags.
TEST_F(FineTuningTest, ScopesMayBeEmpty) {
  const std::string first = "--checkpoint_path=" + (folder_ / "first");
  Train(folder_ / "first", {"--max_number_of_steps=1"});
  std::ofstream(folder_ / "run.toml") << "trainable_scopes = \"\"\n";
  const ProcessResult all =
      Train(folder_ / "all", {first, "--checkpoint_exclude_scopes=LeNet/fc4",
                              "--checkpoint_exclude_scopes=", "--config", folder_ / "run.toml",
                              "--max_number_of_steps=1"});
  EXPECT_THAT(all.err, HasSubstr("8 variables restored"));
  const ProcessResult some = Train(
      train_dir_, {first, "--checkpoint_exclude_scopes=LeNet/fc4, ", "--trainable_scopes=LeNet/fc3",
                   "--trainable_scopes=LeNet/fc4", "--max_number_of_steps=1"});
  EXPECT_THAT(some.err, HasSubstr("6 variables restored"));
  EXPECT_THAT(Carole({"checkpoint", "inspect", train_dir_}).out,
              HasSubstr("--trainable_scopes=LeNet/fc4\n"));
}

TEST_F(FineTuningTest, EvaluationWarnsIfItDiffersFromTraining) {
  Train(train_dir_, {"--max_number_of_steps=1"});
  EXPECT_THAT(Carole(EvalWords(train_dir_)).err, ::testing::Not(HasSubstr("this evaluation uses")));
  RunToEnd(EvalWords(train_dir_, {"--output_dir=/none"}));  // --checkpoint_path wins
  EXPECT_THAT(Carole(EvalWords(train_dir_, {"--preprocessing_name=cifarnet"})).err,
              HasSubstr("--preprocessing_name: the checkpoint was trained with lenet, this "
                        "evaluation uses cifarnet"));
  std::ofstream(data_dir_ + "/labels.txt")
      << "0:one\n1:zero\n2:two\n3:three\n4:four\n5:five\n6:six\n7:seven\n8:eight\n9:nine\n";
  EXPECT_TRUE(FailsWith(
      Carole(EvalWords(train_dir_)), 78,
      {"class 0 was zero when the checkpoint was written", "is one now", "another order"}));
}

TEST_F(FineTuningTest, EvaluatesAndKeepsTheBest) {
  const ProcessResult run =
      Train(train_dir_, {"--eval_every=6", "--keep_best", "--moving_average_decay=0.5"}, 2);
  EXPECT_THAT(run.err, ContainsRegex("step 6: eval/Accuracy 0\\.[0-9]+, eval/Recall_5 .*100 "
                                     "samples"));
  EXPECT_THAT(run.err, ContainsRegex("step 12: eval/Accuracy"));
  EXPECT_THAT(run.err, HasSubstr("kept in " + train_dir_ + "/best"));
  // The moving averages that were evaluated during training are those in the checkpoints.
  for (const std::string step : {"6", "12"}) {
    const ProcessResult eval =
        RunToEnd(EvalWords(train_dir_ + "/model.ckpt-" + step + ".h5",
                           {"--moving_average_decay=0.5", "--json",
                            "--eval_dir=", "--confusion_dir=" + (folder_ / "confusion")}));
    const auto json = nlohmann::json::parse(eval.out);
    const std::string told = run.err.substr(run.err.find("step " + step + ": eval/Accuracy "));
    const auto after = [&](const std::string& tag) {
      return std::stod(told.substr(told.find(tag) + tag.size()));
    };
    EXPECT_NEAR(json["accuracy"].get<double>(), after("eval/Accuracy "), 1e-4);
    EXPECT_NEAR(json["loss"].get<double>(), after("eval/Loss "), 1e-3);
  }
  EXPECT_THAT(ReadText(folder_ / "confusion/confusion.csv"),
              ::testing::StartsWith("label\\prediction,\"zero\",\"one\""));
  EXPECT_THAT(ReadText(folder_ / "confusion/confusion.png"), ::testing::StartsWith("\x89PNG"));
  EXPECT_THAT(ReadText(folder_ / "confusion/confusion.html"),
              ::testing::AllOf(HasSubstr("lenet on mnist test"), HasSubstr("evaluation at step 12"),
                               HasSubstr("zero predicted as ")));
  Train(folder_ / "plain", {"--max_number_of_steps=1"});
  EXPECT_TRUE(FailsWith(Carole(EvalWords(folder_ / "plain", {"--moving_average_decay=0.5"})), 65,
                        {"LeNet/conv1/weights/ExponentialMovingAverage"}));
}

TEST_F(FineTuningTest, EvaluationFollowsARunUntilTheTimeout) {
  for (int step : {2, 3, 4})
    Train(folder_ / std::to_string(step), {"--max_number_of_steps=" + std::to_string(step)});
  std::filesystem::create_directory(train_dir_);
  const auto path = [&](int step) {
    return train_dir_ + "/model.ckpt-" + std::to_string(step) + ".h5";
  };
  const auto save = [&](int step) {  // as a run does, which is already trained
    const std::string name = "model.ckpt-" + std::to_string(step) + ".h5";
    std::filesystem::copy_file(folder_ / std::to_string(step) + "/" + name, train_dir_ + "/copy");
    std::filesystem::rename(train_dir_ + "/copy", path(step));
  };
  save(2);
  Subprocess follower(
      CaroleWords(EvalWords(train_dir_, {"--eval_interval_secs=0.1", "--timeout=15", "--json",
                                         "--eval_dir=" + folder_ / "eval"})));
  const auto follows = [&](const std::string& text) {
    return follower.WaitUntil([&] { return follower.err().find(text) != std::string::npos; }, 60);
  };
  ASSERT_TRUE(follows("model.ckpt-2.h5, step 2"));
  save(4);
  ASSERT_TRUE(follows("model.ckpt-4.h5, step 4"));
  // training starts again, so the curves start again
  for (int step : {2, 4}) std::filesystem::remove(path(step));
  save(3);
  ASSERT_TRUE(follows("model.ckpt-3.h5, step 3"));
  WriteText(path(4), "cut short");
  ASSERT_TRUE(follows("skipping this checkpoint"));
  std::filesystem::create_symlink("pruned", path(5));  // gone once it is read
  const ProcessResult result = follower.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("model.ckpt-5.h5: was deleted; waiting for the next checkpoint"));
  const std::filesystem::directory_iterator files(folder_ / "eval");
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST_F(FineTuningTest, EvaluationFollowsFoldersOnly) {
  const std::string tf = folder_ / "tf";
  Train(train_dir_, {"--max_number_of_steps=1"});
  RunToEnd({"checkpoint", "convert", train_dir_, tf + "/model.ckpt-1"});
  const Words follow = {"--eval_interval_secs=0.1", "--max_number_of_evaluations=1", "--eval_dir="};
  EXPECT_THAT(RunToEnd(EvalWords(tf, follow)).err, HasSubstr("tf/model.ckpt-1, step 1"));
  for (const std::string& one : {train_dir_ + "/model.ckpt-1.h5", tf + "/model.ckpt-1"})
    EXPECT_TRUE(FailsWith(Carole(EvalWords(one, follow)), 64,
                          {"--eval_interval_secs: got one checkpoint", one}));
  // A net that does not fit is an error, not a damaged checkpoint.
  Words other = follow;
  other.emplace_back("--labels_offset=-2");
  EXPECT_TRUE(FailsWith(Carole(EvalWords(tf, other)), 65, {"wrong shape LeNet/fc4/weights"}));
}

TEST_F(FineTuningTest, PredictsImagesAndFolders) {
  Train(train_dir_, {"--max_number_of_steps=150", "--batch_size=32"});
  const std::string images = folder_ / "images";
  WriteDigitImages(images, 6);
  std::filesystem::create_directory(images + "/9.png");  // a folder with the name of an image
  const ProcessResult run =
      RunToEnd({"predict", "--checkpoint_path=" + train_dir_, "--json", "--batch_size=4", images});
  std::istringstream lines(run.out);
  int count = 0, right = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    EXPECT_THAT(json["image"].get<std::string>(), HasSubstr(std::to_string(count) + ".png"));
    EXPECT_EQ(json["predictions"].size(), 5U);
    right += json["predictions"][0]["class"] == count;
  }
  EXPECT_EQ(count, 6);
  EXPECT_GE(right, 3);
  const ProcessResult text =
      Carole({"predict", "--checkpoint_path=" + train_dir_, "--top=1", images + "/3.png"});
  EXPECT_THAT(text.out, ContainsRegex("3.png\n  [01]\\.[0-9]{4}  [a-z]+\n$"));
  std::ofstream(images + "/7.png") << "not an image";
  EXPECT_TRUE(FailsWith(Carole({"predict", "--checkpoint_path=" + train_dir_, images}), 65,
                        {"1 of 7 images could not be read"}));
  EXPECT_TRUE(FailsWith(Carole({"predict", "--checkpoint_path=" + train_dir_, "none.png"}), 65,
                        {"[predict] none.png: cannot open: No such file"}));
  const ProcessResult as_net = Carole({"predict", "--checkpoint_path=" + train_dir_, "--top=1",
                                       "--preprocessing_name=lenet", images + "/3.png"});
  const ProcessResult as_other = Carole({"predict", "--checkpoint_path=" + train_dir_, "--top=1",
                                         "--preprocessing_name=vgg_16", images + "/3.png"});
  EXPECT_EQ(as_net.out, text.out);
  EXPECT_EQ(as_other.exit_code, 0) << as_other.err;
  EXPECT_TRUE(FailsWith(Carole({"predict", "--checkpoint_path=" + train_dir_, "--labels_offset=1",
                                images + "/3.png"}),
                        64, {"--labels_offset: got 1, want 0, with which"}));
  const std::string tf = folder_ / "tf/model.ckpt", back = folder_ / "back.h5";
  RunToEnd({"checkpoint", "convert", train_dir_, tf});
  RunToEnd({"checkpoint", "convert", tf, back, "--model_name=lenet"});
  RunToEnd({"predict", "--checkpoint_path=" + back, "--dataset_name=mnist", "--labels_offset=1",
            images + "/3.png"});
}

// A negative --labels_offset adds classes that only the net has.
TEST_F(FineTuningTest, EvaluatesANetWithMoreClassesThanTheData) {
  const Words more = {"--labels_offset=-2"};
  Train(train_dir_, {more[0], "--max_number_of_steps=1"});
  const ProcessResult eval =
      RunToEnd(EvalWords(train_dir_, {more[0], "--json", "--eval_dir=", "--max_num_batches=1"}));
  const auto classes = nlohmann::json::parse(eval.out)["classes"];
  ASSERT_EQ(classes.size(), 12U);
  EXPECT_EQ(classes[0]["name"], "-2");
  EXPECT_EQ(classes[2]["name"], "zero");
  EXPECT_EQ(classes[11]["name"], "nine");
}

// Bytes that are not UTF-8 must not end the program.
TEST_F(FineTuningTest, ClassNamesMayHaveAnyEncoding) {
  std::ofstream(data_dir_ + "/labels.txt") << "0:z\xe9ro\n";
  Train(train_dir_, {"--max_number_of_steps=1"});
  const ProcessResult eval =
      RunToEnd(EvalWords(train_dir_, {"--json", "--eval_dir=", "--max_num_batches=1"}));
  EXPECT_THAT(eval.out, HasSubstr("z\uFFFDro"));
  const ProcessResult shown = RunToEnd({"checkpoint", "inspect", "--json", train_dir_});
  EXPECT_THAT(shown.out, HasSubstr("z\uFFFDro"));
}

// The data set consists of a user's own folders; the checkpoint knows their names.
TEST_F(FineTuningTest, PredictsWithTheClassNamesOfTraining) {
  const std::string photos = folder_ / "photos", data = folder_ / "photo data";
  for (const char* name : {"odd one", "even"}) WriteDigitImages(photos + "/" + name, 10);
  RunToEnd(
      {"dataset", "build", "--dataset_name=folder", "--raw_dir", photos, "--dataset_dir", data});
  // The data set is imagenet if none is named, as in TF-Slim.
  EXPECT_THAT(RunToEnd({"train", "--dataset_dir=" + data, "--train_dir=" + folder_ / "other",
                        "--model_name=lenet", "--max_number_of_steps=1", "--batch_size=4"})
                  .err,
              HasSubstr("lists 2 classes, but imagenet has 1001, and so has the net"));
  // Two epochs of 18 images are less than a step of 64.
  const Words train = TrainWords(
      train_dir_, {"--dataset_name=folder", "--dataset_dir=" + data, "--max_number_of_steps=1",
                   "--batch_size=64", "--learning_rate_decay_type=exponential"});
  EXPECT_THAT(RunToEnd(train).err,
              ::testing::AllOf(HasSubstr("smaller --batch_size or --learning_rate_decay_type"),
                               HasSubstr("next: carole eval --dataset_dir='" + data + "'"),
                               HasSubstr("next: carole predict --checkpoint_path=" + train_dir_)));
  const ProcessResult eval =
      RunToEnd({"eval", "--dataset_dir=" + data, "--checkpoint_path=" + train_dir_, "--eval_dir="});
  EXPECT_THAT(eval.err, HasSubstr("lenet: images 28x28x3, 2 classes, preprocessing lenet; folder "
                                  "validation in " +
                                  data));
  EXPECT_THAT(eval.out,
              ::testing::AllOf(HasSubstr("(2 samples)"), ::testing::Not(HasSubstr("Recall_5"))));
  const ProcessResult run =
      RunToEnd({"predict", "--checkpoint_path=" + train_dir_, photos + "/even/3.png"});
  for (const char* name : {"  odd one\n", "  even\n"}) EXPECT_THAT(run.out, HasSubstr(name));
  EXPECT_THAT(Carole({"checkpoint", "inspect", train_dir_}).out, HasSubstr(" even … and 1 more\n"));

  io::Image digit;
  io::DecodeImage(ReadText(photos + "/even/3.png"), 1, &digit);
  constexpr int kQuarterLeft = 8, kQuarterRight = 6;
  WriteText(photos + "/turned.png",
            io::WithOrientation(io::EncodePng(io::TurnUpright(digit.view(), kQuarterLeft).view()),
                                kQuarterRight));
  const ProcessResult turned = RunToEnd({"predict", "--checkpoint_path=" + train_dir_,
                                         "--apply_exif_orientation", photos + "/turned.png"});
  EXPECT_EQ(turned.out.substr(turned.out.find('\n')), run.out.substr(run.out.find('\n')));

  std::filesystem::remove(data + "/validation-00000-of-00001.tfrecord");
  EXPECT_THAT(Carole({"eval", "--dataset_dir=" + data, "--checkpoint_path=" + train_dir_,
                      "--eval_dir=", "--max_num_batches=1"})
                  .err,
              HasSubstr("the net was trained on these images"));
  // A file of TensorFlow does not say its classes.
  const std::string tf = folder_ / "tf/model.ckpt";
  RunToEnd({"checkpoint", "convert", train_dir_, tf});
  const Words predict = {"predict", "--checkpoint_path=" + tf, "--model_name=lenet",
                         photos + "/even/3.png"};
  EXPECT_TRUE(FailsWith(Carole(predict), 65, {"built for 10 classes: --num_classes"}));
  Words with_data = predict;
  with_data.push_back("--dataset_dir=" + data);
  EXPECT_EQ(RunToEnd(with_data).out, run.out);
  std::ofstream(data + "/labels.txt", std::ios::app) << "2:third\n";
  EXPECT_TRUE(FailsWith(Carole(train), 65, {"got 3 classes in the data, want 2; new: third"}));
}

}  // namespace
}  // namespace carole::testing
