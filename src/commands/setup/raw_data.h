// Data sets in the form in which they are distributed, converted to TFRecords on the first use.
#pragma once

#include "src/commands/setup/inputs.h"

namespace carole::commands {

// Whether dataset_dir holds MNIST's raw files, or is the file mnist.npz, and there are no
// TFRecords.
bool HoldsOnlyRawFiles(const io::DatasetEntry& dataset, const std::string& dataset_dir);

// Returns the flags with dataset_dir replaced by a folder of TFRecords, if it holds only raw files.
// The MNIST programs' data_dir is such a folder.
//
// One rank of each host writes the TFRecords once, into the folder records-HASH in dataset_dir, or
// in work_dir if that is read-only. The hash differs for other raw files and for newer ones.
// Collective. Throws DataError for damaged files, DiskError if neither folder can be written.
DataConfig PrepareRecords(const DataConfig& flags, const NetInput& input,
                          const RankContext& context);

}  // namespace carole::commands
