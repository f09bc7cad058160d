#include "src/commands/setup/train_config.h"

#include "src/core/error.h"

namespace carole::commands {

void Validate(const TrainConfig& config) {
  const int64_t max_bad_records = config.data.pipeline.max_bad_records;
  if (config.step.reproducible && max_bad_records > 0) {
    throw UsageError({.tag = "flags",
                      .option = "max_bad_records",
                      .got = max_bad_records,
                      .want = "0 with " + Option("reproducible") +
                              ": which record replaces a bad one depends on the number of ranks"});
  }
  const bool evaluates = config.trainer.eval_every > 0 || config.evaluation.epochs_per_eval > 0;
  if (config.trainer.keep_best && !evaluates) {
    throw UsageError(
        {.tag = "flags",
         .option = "keep_best",
         .problem = "nothing is evaluated",
         .hint = "give " + Option("eval_every") + " or " + Option("epochs_per_eval") + " as well"});
  }
  if (!config.step.average_statistics &&
      (config.step.reproducible || config.step.local_sgd_steps > 0)) {
    throw UsageError("[flags] " + Option("noaverage_statistics") + ": does not fit " +
                     Option(config.step.reproducible ? "reproducible" : "local_sgd_steps") +
                     ", with which all ranks have the same statistics; leave one of them out");
  }
  if (config.net.model.quantization && !config.step.average_statistics) {
    throw UsageError("[flags] " + Option("noaverage_statistics") + ": does not fit " +
                     Option("quantize_delay") +
                     ": the weights are folded with these statistics, so all ranks need the same; "
                     "leave one of them out");
  }
  if (config.net.model.quantization && config.step.cross_check_every > 0) {
    throw UsageError("[flags] " + Option("cross_check_every") + ": does not fit " +
                     Option("quantize_delay") +
                     ": each rank rounds with the ranges of its own images, so no rank can compute "
                     "the gradients of another one; leave one of them out");
  }
  RequireFp32IfQuantized(config.net.model, config.machine.precision);
  CheckSize("batch_size", config.batch.per_rank);
  CheckSize("train_batch_size", config.batch.per_host);
}

}  // namespace carole::commands
