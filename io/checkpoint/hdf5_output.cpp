#include "io/checkpoint/hdf5_output.h"

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "src/core/files/disk.h"

namespace carole::io::hdf5_internal {
namespace {

// Passed to Open() through the access list.
struct OutputInfo {
  int* error;
};

// The state of one open file. The library sees its base class only.
struct OutputFile : H5FD_t {
  FileDescriptor descriptor;
  int* error = nullptr;
  haddr_t end = 0;        // end of the written bytes (HDF5: EOF)
  haddr_t allocated = 0;  // end of the bytes that the library has allocated (HDF5: EOA)
};

OutputFile& AsOutputFile(H5FD_t* file) { return static_cast<OutputFile&>(*file); }
const OutputFile& AsOutputFile(const H5FD_t* file) { return static_cast<const OutputFile&>(*file); }

H5FD_t* Open(const char* name, unsigned, hid_t access, haddr_t) {
  auto file = std::make_unique<OutputFile>();
  file->descriptor = FileDescriptor(
      RetryIfInterrupted([&] { return open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); }));
  file->error = static_cast<const OutputInfo*>(H5Pget_driver_info(access))->error;
  if (file->descriptor.is_open()) return file.release();
  *file->error = errno;
  return nullptr;
}

// Makes the content durable through the descriptor that wrote it, so that no error is missed.
herr_t Close(H5FD_t* base) {
  const std::unique_ptr<OutputFile> file(&AsOutputFile(base));
  if (*file->error == 0 && RetryIfInterrupted([&] { return fsync(file->descriptor.get()); }) != 0 &&
      errno != EINVAL)
    *file->error = errno;
  return 0;
}

herr_t Query(const H5FD_t*, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA;
  return 0;
}

haddr_t Allocated(const H5FD_t* file, H5FD_mem_t) { return AsOutputFile(file).allocated; }
herr_t SetAllocated(H5FD_t* file, H5FD_mem_t, haddr_t address) {
  AsOutputFile(file).allocated = address;
  return 0;
}
haddr_t End(const H5FD_t* file, H5FD_mem_t) { return AsOutputFile(file).end; }

// Bytes that were not written read as zero.
herr_t Read(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, size_t bytes, void* buffer) {
  auto* to = static_cast<char*>(buffer);
  std::memset(to, 0, bytes);
  while (bytes > 0) {
    const ssize_t n =
        pread(AsOutputFile(base).descriptor.get(), to, bytes, static_cast<off_t>(address));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? -1 : 0;
    to += n;
    address += static_cast<haddr_t>(n);
    bytes -= static_cast<size_t>(n);
  }
  return 0;
}

herr_t Write(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, size_t bytes, const void* data) {
  OutputFile& file = AsOutputFile(base);
  file.end = std::max<haddr_t>(file.end, address + bytes);
  if (*file.error == 0) {
    *file.error = WriteAt(file.descriptor.get(), {static_cast<const char*>(data), bytes},
                          static_cast<int64_t>(address));
  }
  return 0;
}

herr_t Truncate(H5FD_t* base, hid_t, hbool_t) {
  OutputFile& file = AsOutputFile(base);
  if (file.end == file.allocated) return 0;
  const int status = RetryIfInterrupted(
      [&] { return ftruncate(file.descriptor.get(), static_cast<off_t>(file.allocated)); });
  if (status != 0 && *file.error == 0) *file.error = errno;
  file.end = file.allocated;
  return 0;
}

H5FD_class_t MakeClass() {
  H5FD_class_t driver{};
#ifdef H5FD_CLASS_VERSION
  driver.version = H5FD_CLASS_VERSION;
  driver.value = static_cast<H5FD_class_value_t>(H5_VFD_RESERVED);
#endif
  driver.name = "carole_output";
  driver.maxaddr = HADDR_MAX;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.fapl_size = sizeof(OutputInfo);
  driver.open = Open;
  driver.close = Close;
  driver.query = Query;
  driver.get_eoa = Allocated;
  driver.set_eoa = SetAllocated;
  driver.get_eof = End;
  driver.read = Read;
  driver.write = Write;
  driver.truncate = Truncate;
  constexpr H5FD_mem_t kFreeLists[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(kFreeLists), std::end(kFreeLists), std::begin(driver.fl_map));
  return driver;
}

}  // namespace

herr_t SetOutputDriver(hid_t access, int& error) {
  static const H5FD_class_t driver = MakeClass();
  static const hid_t id = H5FDregister(&driver);
  const OutputInfo info{&error};
  return H5Pset_driver(access, id, &info);
}

}  // namespace carole::io::hdf5_internal
