// The net of a checkpoint and the images that it expects, from flags and from what the checkpoint
// says. Shared by `carole predict` and `carole export`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nets/nets.h"
#include "src/commands/flags/flags.h"
#include "src/train/state/run_metadata.h"

namespace carole::commands {

struct CheckpointNet {
  CheckpointConfig checkpoint;
  NetConfig net{.model_name = ""};           // the checkpoint's, if it says that
  DataConfig data = MakeDataConfig("", "");  // likewise
  std::vector<std::string> class_names;      // the checkpoint's, unless flags name a data set
};

// Fills what flags did not give from the checkpoint's metadata. Throws UsageError, with this tag,
// if nothing says which net it is, or if --labels_offset differs from that of the training.
void FillFromCheckpoint(std::string_view tag, const train::RunMetadata& metadata,
                        CheckpointNet& net);

// Fills sizes that neither flags nor the checkpoint gave with the defaults of the net and of the
// data set.
void FillSizes(const nets::NetEntry& entry, CheckpointNet& net);

// Returns the number of channels to decode. As in training, colors become gray only at the end of
// the preprocessing, so images of a color data set are decoded in color.
int DecodedChannels(const CheckpointNet& net);

// Returns the names of the net's classes. A class without a name is named by its number.
std::vector<std::string> ClassNamesOf(const CheckpointNet& net, int64_t num_classes);

}  // namespace carole::commands
