// Private to the implementation of hdf5.h: RAII identifiers, checked calls, the lock.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace carole::io::hdf5_internal {

// Must be held during every use of the library. The first lock initializes the library and disables
// the loading of plug-ins. Every lock turns off error printing for its thread. The mutex is
// recursive, because Hdf5File's functions and destructor lock it while a caller holds it.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// The object that a call works on, for the text of errors. Holds references, which must outlive it.
struct Site {
  const std::string& file;
  const std::string& object;  // "/path", or "/path, attribute name"
};

// Throws the error "FILE: OBJECT: cannot WHAT: …". The type is DiskError if the library's error
// stack holds an errno, else DataError. Clears the stack.
[[noreturn]] void Fail(const Site& site, std::string_view what);

// Returns the status of an HDF5 call, or calls Fail() if it is negative.
template <typename Status>
Status Check(Status status, const Site& site, std::string_view what) {
  if (status < 0) Fail(site, what);
  return status;
}

// Owns an HDF5 identifier and closes it with `close`. To be used under the lock only.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  operator hid_t() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// True if every component of the absolute path is a hard link; false if one is absent. Throws
// DataError for soft, external and user-defined links.
bool FollowHardLinks(hid_t file, const Site& site);

// Opens a group or dataset. Throws DataError if it does not exist.
Handle OpenObject(hid_t file, const Site& site);

}  // namespace carole::io::hdf5_internal
