// Shared by the parts of hdf5.h: identifiers that close themselves, checked calls, the lock. Not
// for others.
#pragma once

#include <hdf5.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace carole::io::hdf5_internal {

// Held during every use of the library. The first lock also prepares the library: its error printer
// is turned off, and so is the loading of plug-ins. Recursive, because closing a handle locks too.
class Lock {
 public:
  Lock();

 private:
  std::lock_guard<std::recursive_mutex> guard_;
};

// What is being done to which object: gives errors their text.
struct Site {
  const std::string& file;
  const std::string& object;  // with its attribute, if that is meant
};

// Throws DiskError when the library's error stack holds an errno, else DataError; clears the stack.
[[noreturn]] void Fail(const Site& site, std::string_view what);

// The status of any HDF5 call: negative means failure.
template <typename Status>
Status Check(Status status, const Site& site, std::string_view what) {
  if (status < 0) Fail(site, what);
  return status;
}

// Owns an identifier. Used under the lock only.
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

// True when every step of the absolute path is a hard link; false when one is absent. Throws
// DataError for soft, external and user-defined links.
bool FollowHardLinks(hid_t file, const Site& site);

// Opens a group or dataset that must exist.
Handle OpenObject(hid_t file, const Site& site);

}  // namespace carole::io::hdf5_internal
