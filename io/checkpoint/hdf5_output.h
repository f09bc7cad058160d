// How hdf5.h writes a new file: piece by piece, as the library makes it. Not for others.
#pragma once

#include <hdf5.h>

namespace carole::io::hdf5_internal {

// Lets a file that is created with this access list go to the disk without a copy in memory. The
// library is told that every write succeeded, as version 1.10 crashes when one did not, and the
// whole job with it: the errno of the first one that the disk refused is put into `error`, which
// must outlive the file; then the file is worthless. Under the lock only. Negative means failure.
herr_t SetOutputDriver(hid_t access, int& error);

}  // namespace carole::io::hdf5_internal
