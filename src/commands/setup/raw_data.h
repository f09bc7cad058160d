// Data sets as they are distributed, where TFRecords are asked for.
#pragma once

#include "src/commands/setup/inputs.h"

namespace carole::commands {

// Whether dataset_dir holds MNIST's raw files, or is mnist.npz, and there are no TFRecords.
bool HoldsOnlyRawFiles(const io::DatasetEntry& dataset, const std::string& dataset_dir);

// Where dataset_dir holds only raw files (the MNIST programs' data_dir), one rank of each machine
// writes TFRecords once, into a folder `records-HASH` there or, when it is read-only, of work_dir;
// other raw files, or newer ones, have another hash. Returns the flags with the folder of the
// TFRecords. Collective. Throws DataError for damaged files, DiskError when neither folder can be
// written.
DatasetFlags PrepareRecords(const DatasetFlags& flags, const NetInput& input, const Job& job);

}  // namespace carole::commands
