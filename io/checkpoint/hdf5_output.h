// The virtual file driver with which hdf5.h writes new files. Private to hdf5.cpp.
#pragma once

#include <hdf5.h>

namespace carole::io::hdf5_internal {

// Selects the driver in a file access list. A file that is created with this list goes to the disk
// as the library produces it, without a copy in memory.
//
// The driver tells the library that every write succeeded. The reason: version 1.10 crashes if a
// write fails, and the whole job with it. The errno of the first failed write is stored in `error`
// instead. Then the file is worthless. Closing the file makes its content durable. An error of
// that, or of creating the file, is stored as well. `error` must outlive the file. Call under the
// lock only. Returns a negative value on failure.
herr_t SetOutputDriver(hid_t access, int& error);

}  // namespace carole::io::hdf5_internal
