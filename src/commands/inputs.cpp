#include "src/commands/inputs.h"

#include <fmt/format.h>

#include "src/commands/same_flags.h"
#include "src/core/error.h"

namespace carole::commands {

NetInput ResolveNetInput(const NetFlags& net, const DatasetFlags& dataset) {
  NetInput input;
  input.net = &nets::FindNet(net.model_name);
  input.dataset = &io::FindDataset(dataset.dataset_name);
  if (dataset.dataset_dir.empty())
    throw UsageError("[flags] --dataset_dir: missing: name the folder of the TFRecords");
  input.preprocessing = dataset.preprocessing_name.empty() ? std::string(input.net->preprocessing)
                                                           : dataset.preprocessing_name;
  if (input.preprocessing.empty())
    throw UsageError(fmt::format("[flags] --preprocessing_name: missing: {} has none of its own",
                                 net.model_name));
  input.image_size = net.image_size > 0 ? net.image_size : static_cast<int>(input.net->image_size);
  input.channels = input.dataset->channels;
  input.num_classes = input.dataset->num_classes - dataset.labels_offset;
  if (input.num_classes < 2) {
    throw UsageError(fmt::format(
        "[flags] --labels_offset: too few classes are left: got {}, want 2 or more",
        input.num_classes));
  }
  return input;
}

io::PipelineOptions MakePipelineOptions(const DatasetFlags& flags, const NetInput& input,
                                        const Job& job, int64_t local_batch) {
  io::PipelineOptions options;
  options.dataset = input.dataset;
  options.dataset_dir = flags.dataset_dir;
  options.work_dir = flags.work_dir;
  options.split = flags.dataset_split_name;
  options.preprocessing = input.preprocessing;
  options.height = options.width = input.image_size;
  options.channels = input.channels;
  options.labels_offset = flags.labels_offset;
  options.num_classes = input.num_classes;
  options.local_batch = local_batch;
  options.rank = job.rank();
  options.size = job.size();
  options.threads = flags.num_preprocessing_threads;
  return options;
}

nets::ModelOptions MakeModelOptions(const NetInput& input, int64_t local_batch) {
  return {.batch_size = local_batch,
          .image_size = input.image_size,
          .channels = input.channels,
          .num_classes = input.num_classes};
}

int ParseAndRun(CommandLine& line, const std::vector<std::string>& arguments,
                const DatasetFlags& dataset, const NetFlags& net, const MachineFlags& machine,
                const std::function<int(Job&, const NetInput&)>& body) {
  if (!line.Parse(arguments)) return 0;
  line.RefuseUnsupported();
  const NetInput input = ResolveNetInput(net, dataset);
  return RunJob(machine, [&](Job& job) {
    RequireSameFlags(line, job.communicator());
    line.LogIgnored();
    return body(job, input);
  });
}

}  // namespace carole::commands
