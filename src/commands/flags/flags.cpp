#include "src/commands/flags/flags.h"

#include "collectives/algorithms/algorithms.h"
#include "io/datasets/datasets.h"
#include "src/core/text/join_names.h"

namespace carole::commands {

std::string RefuseWeightsName(const std::string& name) {
  if (!name.ends_with(".weights.h5")) return "";
  return name + ": Keras wants weights alone, in another layout, under that name; want NAME.h5";
}

io::DctMethod ParseDctMethod(const std::string& name) {
  return name == "INTEGER_ACCURATE" ? io::DctMethod::kIntegerAccurate : io::DctMethod::kIntegerFast;
}

void AddDatasetFlags(CommandLine& line, DatasetFlags& flags) {
  line.Group("Data");
  line.Add("dataset_name", flags.dataset_name, JoinNames(io::kDatasets));
  line.Add("dataset_split_name", flags.dataset_split_name,
           "train, test, validation or val, as the data set has it");
  line.Add(
      "dataset_dir,data_dir", flags.dataset_dir,
      "folder of the TFRecords, or folders, shards and globs of them with commas between; MNIST's "
      "may hold the raw files");
  line.Add("labels_offset", flags.labels_offset,
           "subtracted from every label and from the number of classes")
      ->check(CLI::Range(-1'000'000, 1'000'000));
  line.Add("preprocessing_name", flags.preprocessing_name,
           "as of which net; the default is --model_name");
  line.AddBool(
      "use_grayscale", flags.use_grayscale,
      "the net sees one channel: colors are weighed as TensorFlow weighs them, after their "
      "distortion");
  line.Add("num_preprocessing_threads", flags.num_preprocessing_threads,
           "threads that decode images, of each rank, at most its cores; 0: the cores that "
           "--threads leaves free, else all, as they sleep while there are batches enough")
      ->check(CLI::Range(0, 1024));
  line.Add(
      "work_dir", flags.work_dir,
      "place for the index of records when dataset_dir is read-only, and for the records made of "
      "MNIST's raw files");
  line.Add("dct_method", flags.dct_method,
           "how JPEGs are decoded: INTEGER_FAST, as TensorFlow does, or INTEGER_ACCURATE")
      ->check(CLI::IsMember({"INTEGER_FAST", "INTEGER_ACCURATE"}));
  line.Add("jpeg_decoder", flags.jpeg_decoder,
           "cpu; or nvjpeg: the rank's GPU decodes baseline color JPEGs, to pixels that differ by "
           "a few levels, and computes less meanwhile; what NVIDIA's library does not take is the "
           "CPU's")
      ->check(CLI::IsMember({"cpu", "nvjpeg"}));
  line.AddBool(
      "dct_scaling", flags.dct_scaling,
      "decode JPEGs at 1/2, 1/4 or 1/8 where that is no less than the net gets: faster for "
      "large photos, and smoother than TF-Slim's pixels");
  line.AddNonNegative(
      "max_bad_records", flags.max_bad_records,
      "of an epoch, over all ranks, that are skipped with a warning; 0: the first one ends the "
      "run");
}

void AddNetFlags(CommandLine& line, NetFlags& flags, const std::string& size_name) {
  line.Group("Net");
  line.Add("model_name", flags.model_name, "which net; `carole model list` names them");
  line.Add(size_name, flags.image_size, "height and width of its images; 0: the net's own")
      ->check(CLI::Range(0, 1 << 14));
}

void AddOptimizerFlags(CommandLine& line, std::string& optimizer, optim::OptimizerOptions& o) {
  line.Group("Optimizer");
  line.Add("optimizer", optimizer, JoinNames(optim::kOptimizers));
  line.Add("weight_decay", o.weight_decay, "L2 regularization of the weights");
  line.Add("momentum", o.momentum, "of momentum and lars");
  line.AddBool("nesterov", o.nesterov, "momentum that looks ahead, of momentum");
  line.Add("lars_eta", o.lars_eta, "trust coefficient of lars");
  line.Add("lars_epsilon", o.lars_epsilon, "of lars");
  line.Add("clip_gradient_norm", o.clip_gradient_norm,
           "largest norm of the whole gradient, L2 terms left out; 0: any");
  line.Add("adadelta_rho", o.adadelta_rho, "decay of adadelta");
  line.Add("adagrad_initial_accumulator_value", o.adagrad_initial_accumulator_value, "of adagrad");
  line.Add("adam_beta1", o.adam_beta1, "decay of adam's first moment");
  line.Add("adam_beta2", o.adam_beta2, "decay of adam's second moment");
  line.Add("opt_epsilon", o.opt_epsilon, "epsilon of adadelta, adam and rmsprop");
  line.Add("ftrl_learning_rate_power", o.ftrl_learning_rate_power, "of ftrl");
  line.Add("ftrl_initial_accumulator_value", o.ftrl_initial_accumulator_value, "of ftrl");
  line.Add("ftrl_l1", o.ftrl_l1, "L1 strength of ftrl");
  line.Add("ftrl_l2", o.ftrl_l2, "L2 strength of ftrl");
  line.Add("rmsprop_momentum", o.rmsprop_momentum, "momentum of rmsprop");
  line.Add("rmsprop_decay", o.rmsprop_decay, "decay of rmsprop");
}

void AddScheduleFlags(CommandLine& line, optim::LearningRateOptions& o) {
  line.Group("Learning rate");
  line.Add("learning_rate_decay_type", o.type, optim::kDecayTypes);
  line.Add("learning_rate", o.learning_rate, "at the start");
  line.AddNonNegative(
      "learning_rate_base_batch", o.scale_batch,
      "global batch that the rate is meant for: it grows with the batch; 0: it does not");
  line.Add("end_learning_rate", o.end_learning_rate, "at the end, polynomial and cosine only");
  line.Add("learning_rate_decay_factor", o.decay_factor, "of each decay, exponential only");
  line.Add("num_epochs_per_decay", o.num_epochs_per_decay,
           "exponential: epochs between two decays; polynomial and cosine: epochs until "
           "--end_learning_rate, mostly all that are trained");
  line.AddList("learning_rate_boundaries", o.boundaries, "epochs, piecewise only");
  line.AddList("learning_rate_factors", o.factors,
               "of the rate before, between and after the boundaries");
  line.Add("warmup_epochs", o.warmup_epochs, "epochs of linear warm-up");
}

void AddMachineFlags(CommandLine& line, MachineFlags& flags) {
  line.Group("Machine");
  line.Add("backend", flags.backend,
           "who computes: cuda, onednn or reference; auto: a GPU where there is one that works")
      ->check(CLI::IsMember({"auto", "cuda", "onednn", "reference"}));
  line.Add("threads", flags.threads, "of each rank; 0: its share of the cores")
      ->check(CLI::Range(0, 4096));
  line.Add(
          "precision", flags.precision,
          "of activations and products: fp32, bf16, fp16 or tf32, where the device has it; weights "
          "stay fp32")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "tf32"}));
  line.AddBool("winograd", flags.winograd,
               "on CPUs: 3x3 convolutions with a quarter of the multiplications where that is "
               "faster; off by 1e-6 instead of 2e-7, so vgg_416, which is too deep, never");
  line.AddBool("autotune", flags.autotune,
               "on GPUs: time cuDNN's plans for each new convolution, and keep the fastest in "
               "~/.cache/carole/plans ($XDG_CACHE_HOME)");
}

void AddCollectiveFlags(CommandLine& line, MachineFlags& flags) {
  line.Group("Ranks");
  line.Add("all_reduce", flags.all_reduce,
           "auto (between hosts measures once, and keeps it in ~/.cache/carole/all_reduce, "
           "$XDG_CACHE_HOME), " +
               JoinNames(collectives::kAllReduce));
  line.Add("wire_dtype", flags.wire_dtype,
           "of gradients between hosts of CPUs: fp32, or bf16 (half the bytes, sums in fp32)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  line.AddPositive(
      "collective_timeout", flags.collective_timeout,
      "seconds after which a rank that does not come, or sends nothing more, ends the job");
  line.AddNonNegative("bucket_mb", flags.bucket_mb,
                      "size of the pieces in which gradients travel; 0: chosen for you");
}

}  // namespace carole::commands
