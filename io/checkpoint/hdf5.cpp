// Reads and writes HDF5 files. Treats every file that it reads as hostile.
//
// The task
//
// A checkpoint may be truncated, damaged by a disk, or made by somebody who wants to harm the
// reader. HDF5 is a rich format. A file can name other files, load code, and claim sizes that it
// does not have. The library follows all of this by default. This file uses the library for the
// layout, but checks each object before the library touches its data. A violation is a DataError
// that names the file and the object.
//
// Reasons for refusing a file
//
//   - Files that are not regular files. Opening a pipe would block, and reading a device has
//     effects.
//   - Soft, external and user-defined links. An external link opens another file, for example one
//     that this user may read and the author of the file may not. FollowHardLinks() looks at each
//     component of a path before the object is opened.
//   - External storage and virtual datasets: the bytes of the dataset would come from other files.
//   - Filters other than deflate and shuffle. The library loads a filter that it does not know as a
//     plug-in, which runs foreign code. So plug-ins are also switched off for the process (Lock).
//   - Sizes that the file cannot hold. See the example below.
//   - Ranks above Shape::kMaxRank, and shapes whose bytes do not fit 63 bits.
//   - Variable-length strings, unless the caller vouches for the file (HeapStrings). They are
//     stored in a heap without checksums. Version 1.10 of the library hangs or overruns its buffer
//     if that heap is damaged. Carole's own attributes therefore have fixed length.
//
// Sizes, with an example
//
// Memory is allocated only after CheckStorage(). A chunked dataset may declare the shape
// 1000000x1000000 and store no chunk at all. Such a file has a few kilobytes, but its 4-byte floats
// would take 4,000,000,000,000 bytes; the library would fill them with zeros. Two bounds prevent
// this:
//
//   - The stored bytes of the dataset may not exceed the size of the file.
//   - The elements may need at most 1032 times the stored bytes if there are filters, because
//     deflate cannot shrink data by more. Without filters the factor is 1.
//
// In the example 0 bytes are stored, so the file is refused. ReadShape() first bounds the product
// of the dimensions, so that the multiplication cannot overflow. The bounds hold for one dataset.
// The callers also bound the sum over datasets, because many names can lead to the same bytes
// (checkpoint.cpp, keras_weights.cpp).
//
// Limits of these checks
//
// They do not find changed values. Metadata carries checksums, because files are written in the
// format of version 1.8. Values are covered by the digest in checkpoint.cpp.
//
// Errors
//
// The library keeps a stack of error entries for each thread, and prints it unless told otherwise.
// Fail() takes the innermost text, and an errno if an entry contains one. An errno means that the
// operating system refused, so it becomes a DiskError. Everything else becomes a DataError.
//
// Writing
//
// New files go through a driver of our own (hdf5_output.h), because version 1.10 crashes if a write
// fails. The errno of the first failed write is thrown by the next function that writes data, or by
// Close().
//
// Threads
//
// The library is not thread-safe. All uses in the process hold one recursive mutex (Lock).
#include "io/checkpoint/hdf5.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "io/checkpoint/hdf5_internal.h"
#include "io/checkpoint/hdf5_output.h"
#include "src/core/check.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"

namespace carole::io {
namespace hdf5_internal {
namespace {

std::recursive_mutex& Mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

// What Fail() needs of the library's error stack.
struct ErrorStack {
  std::string innermost;  // text of the innermost entry
  int error = 0;          // errno, if the operating system refused
};

// Called for each entry, the innermost first.
herr_t Collect(unsigned n, const H5E_error2_t* entry, void* out) {
  auto* stack = static_cast<ErrorStack*>(out);
  const char* text = entry->desc != nullptr ? entry->desc : "";
  constexpr std::string_view kErrno = "errno = ";
  if (n == 0) stack->innermost = text;
  if (const char* found = std::strstr(text, kErrno.data()); found != nullptr && stack->error == 0)
    stack->error = std::atoi(found + kErrno.size());
  return 0;
}

}  // namespace

Lock::Lock() : guard_(Mutex()) {
  static const bool ready = [] {
    H5open();
    H5PLset_loading_state(0);
    return true;
  }();
  (void)ready;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // for this thread's error stack
}

void Fail(const Site& site, std::string_view what) {
  ErrorStack stack;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, Collect, &stack);
  H5Eclear2(H5E_DEFAULT);
  const std::string place = fmt::format("{}: {}", site.file, site.object);
  if (stack.error != 0) ThrowDiskError("io.hdf5", place, what, stack.error);
  // The library says this of a structure that a later version of HDF5 defined.
  const bool is_newer = stack.innermost.find("version") != std::string::npos;
  throw DataError(
      fmt::format("[io.hdf5] {}: cannot {}: {}; {}", place, what, stack.innermost,
                  is_newer ? "if a newer HDF5 wrote the file, rewrite it with `h5repack FILE NEW`; "
                             "else copy it again"
                           : "copy the file again, or use an earlier one"));
}

bool FollowHardLinks(hid_t file, const Site& site) {
  const std::string& path = site.object;
  for (size_t end = path.find('/', 1); path.size() > 1; end = path.find('/', end + 1)) {
    const std::string prefix = path.substr(0, end);
    if (Check(H5Lexists(file, prefix.c_str(), H5P_DEFAULT), site, "look up") == 0) return false;
    H5L_info_t info;
    Check(H5Lget_info(file, prefix.c_str(), &info, H5P_DEFAULT), site, "look up");
    if (info.type != H5L_TYPE_HARD) {
      throw DataError(fmt::format("[io.hdf5] {}: {}: is a soft or external link, want a hard link",
                                  site.file, prefix));
    }
    if (end == std::string::npos) break;
  }
  return true;
}

Handle OpenObject(hid_t file, const Site& site) {
  if (!FollowHardLinks(file, site)) {
    throw DataError(fmt::format("[io.hdf5] {}: {}: is missing", site.file, site.object));
  }
  return {Check(H5Oopen(file, site.object.c_str(), H5P_DEFAULT), site, "open"), H5Oclose};
}

}  // namespace hdf5_internal

namespace {

using namespace hdf5_internal;  // NOLINT: this file implements both

constexpr char kWholeFile[] = "the file";
// Deflate cannot shrink data by more than this factor.
constexpr uint64_t kMaxDeflateRatio = 1032;

// Files of any version of the format are read. New files have that of version 1.8.
Handle MakeFileAccess(H5F_libver_t oldest, H5F_libver_t newest) {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_libver_bounds(access, oldest, newest);
#if H5_VERSION_GE(1, 10, 7)
  // Locks are not needed: a file gets its final name when it is complete, so nobody reads a file
  // that is being written. And locks fail on some cluster file systems.
  H5Pset_file_locking(access, false, true);
#endif
  return access;
}

// Returns the size of the file. Throws DiskError if it cannot be read, DataError if it is not a
// regular file.
uint64_t SizeOfFile(const std::string& path) {
  const FileDescriptor file(
      RetryIfInterrupted([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat status {};
  if (!file.is_open() || fstat(file.get(), &status) != 0) {
    ThrowDiskError("io.hdf5", path, "open", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(fmt::format(
        "[io.hdf5] {}: is not a regular file: got a folder, device or pipe, want a file", path));
  }
  return static_cast<uint64_t>(status.st_size);
}

// The library keeps the memory of freed objects, up to 1 MiB for each kind of block. An attribute
// that has another length in each checkpoint fills these lists, so a long run would grow by them.
herr_t CloseFile(hid_t file) {
  const herr_t status = H5Fclose(file);
  H5garbage_collect();
  return status;
}

void CheckFilters(hid_t creation, const Site& site) {
  const int count = Check(H5Pget_nfilters(creation), site, "count the filters");
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    size_t num_values = 0;
    const H5Z_filter_t filter =
        Check(H5Pget_filter2(creation, i, &flags, &num_values, nullptr, 0, nullptr, nullptr), site,
              "read the filters");
    if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE) {
      throw DataError(fmt::format(
          "[io.hdf5] {}: {}: unsupported filter: got number {}, want none, deflate or shuffle; "
          "rewrite the file with `h5repack -f NONE FILE NEW`",
          site.file, site.object, static_cast<int>(filter)));
    }
  }
}

// Throws DataError if the data is stored in another file, or needs more bytes than this file can
// hold.
void CheckStorage(hid_t dataset, const Shape& shape, size_t element_bytes, uint64_t file_bytes,
                  const Site& site) {
  const Handle creation(Check(H5Dget_create_plist(dataset), site, "read the layout"), H5Pclose);
  const H5D_layout_t layout = Check(H5Pget_layout(creation), site, "read the layout");
  if (layout == H5D_VIRTUAL || H5Pget_external_count(creation) != 0) {
    throw DataError(
        fmt::format("[io.hdf5] {}: {}: data is stored in another file, want it in this file",
                    site.file, site.object));
  }
  CheckFilters(creation, site);
  const uint64_t stored = H5Dget_storage_size(dataset);
  const uint64_t wanted = static_cast<uint64_t>(shape.size()) * element_bytes;
  const uint64_t ratio = H5Pget_nfilters(creation) > 0 ? kMaxDeflateRatio : 1;
  if (stored > file_bytes || wanted / ratio > stored) {
    throw DataError(
        fmt::format("[io.hdf5] {}: {}: shape {} needs {} bytes: got {} stored bytes in a file of "
                    "{} bytes",
                    site.file, site.object, shape.ToString(), wanted, stored, file_bytes));
  }
}

Shape ReadShape(hid_t dataset, const Site& site) {
  const Handle space(Check(H5Dget_space(dataset), site, "read the shape"), H5Sclose);
  const int rank = Check(H5Sget_simple_extent_ndims(space), site, "read the shape");
  hsize_t dims[H5S_MAX_RANK] = {};
  if (rank > 0) Check(H5Sget_simple_extent_dims(space, dims, nullptr), site, "read the shape");
  // The bound on the number of elements: their bytes, four or eight each, still fit 63 bits.
  uint64_t left = std::numeric_limits<int64_t>::max() / 8;
  bool fits = rank <= Shape::kMaxRank && H5Sget_simple_extent_type(space) != H5S_NULL;
  for (int i = 0; i < rank && fits; ++i) {
    fits = dims[i] <= left;
    if (dims[i] > 0) left /= dims[i];
  }
  if (!fits) {
    throw DataError(
        fmt::format("[io.hdf5] {}: {}: unsupported shape: its {} dimensions are too many or too "
                    "large for a weight",
                    site.file, site.object, rank));
  }
  return Shape(std::vector<int64_t>(dims, dims + rank));
}

Handle OpenDataset(hid_t file, const Site& site) {
  Handle object = OpenObject(file, site);
  if (H5Iget_type(object) != H5I_DATASET) {
    throw DataError(fmt::format("[io.hdf5] {}: {}: is not a dataset", site.file, site.object));
  }
  return {Check(H5Dopen2(file, site.object.c_str(), H5P_DEFAULT), site, "open"), H5Dclose};
}

// Link creation properties that make the groups on the way to the object.
Handle MakeParents(const Site& site) {
  Handle links(Check(H5Pcreate(H5P_LINK_CREATE), site, "create"), H5Pclose);
  Check(H5Pset_create_intermediate_group(links, 1), site, "create");
  return links;
}

herr_t AppendName(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

// The name of an element type: "float32", "uint8", or "other".
std::string NameOfType(hid_t type) {
  const size_t bits = 8 * H5Tget_size(type);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_FLOAT) return fmt::format("float{}", bits);
  if (kind != H5T_INTEGER) return "other";
  return fmt::format("{}int{}", H5Tget_sign(type) == H5T_SGN_NONE ? "u" : "", bits);
}

}  // namespace

bool IsHdf5(const std::string& path) {
  const Lock lock;
  SizeOfFile(path);
  return Check(H5Fis_hdf5(path.c_str()), {path, kWholeFile}, "read") > 0;
}

Hdf5File Hdf5File::Create(const std::string& path) {
  const Lock lock;
  const Site site{path, kWholeFile};
  const FileDescriptor probe(
      RetryIfInterrupted([&] { return open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666); }));
  if (!probe.is_open()) ThrowDiskError("io.hdf5", path, "create", errno);
  auto write_error = std::make_unique<int>(0);
  const Handle access = MakeFileAccess(H5F_LIBVER_V18, H5F_LIBVER_V18);
  Check(SetOutputDriver(access, *write_error), site, "create");
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
  if (id < 0 && *write_error != 0) {
    H5Eclear2(H5E_DEFAULT);
    ThrowDiskError("io.hdf5", path, "create", *write_error);
  }
  Check(id, site, "create");
  Hdf5File file(path, id, 0, HeapStrings::kRefuse);
  file.write_error_ = std::move(write_error);
  return file;
}

Hdf5File Hdf5File::Open(const std::string& path, HeapStrings heap_strings) {
  const Lock lock;
  const uint64_t bytes = SizeOfFile(path);
  const Site site{path, kWholeFile};
  if (Check(H5Fis_hdf5(path.c_str()), site, "read") == 0) {
    throw DataError(fmt::format("[io.hdf5] {}: is not an HDF5 file ({} bytes)", path, bytes));
  }
  const Handle access = MakeFileAccess(H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST);
  const hid_t id = Check(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), site, "open");
  return {path, id, bytes, heap_strings};
}

Hdf5File::Hdf5File(Hdf5File&& other) noexcept
    : path_(std::move(other.path_)),
      id_(std::exchange(other.id_, -1)),
      bytes_(other.bytes_),
      heap_strings_(other.heap_strings_),
      write_error_(std::move(other.write_error_)) {}

Hdf5File::~Hdf5File() {
  const Lock lock;
  if (id_ >= 0) {
    CloseFile(id_);
    if (write_error_) unlink(path_.c_str());
  }
  H5Eclear2(H5E_DEFAULT);
}

void Hdf5File::ThrowIfWriteFailed() const {
  if (*write_error_ != 0) ThrowDiskError("io.hdf5", path_, "write", *write_error_);
}

void Hdf5File::Close() {
  const Lock lock;
  const herr_t status = CloseFile(std::exchange(id_, -1));
  ThrowIfWriteFailed();
  Check(status, {path_, kWholeFile}, "close");
}

void Hdf5File::CreateGroup(const std::string& object) {
  const Lock lock;
  const Site site{path_, object};
  const Handle links = MakeParents(site);
  const Handle group(
      Check(H5Gcreate2(id_, object.c_str(), links, H5P_DEFAULT, H5P_DEFAULT), site, "create"),
      H5Gclose);
}

void Hdf5File::WriteFloats(const std::string& object, const Shape& shape,
                           std::span<const float> data) {
  CAROLE_CHECK_EQ(static_cast<int64_t>(data.size()), shape.size(), "elements of {}", object);
  const Lock lock;
  const Site site{path_, object};
  hsize_t dims[Shape::kMaxRank] = {};
  for (int i = 0; i < shape.rank(); ++i) dims[i] = static_cast<hsize_t>(shape[i]);
  const Handle space(Check(shape.rank() == 0 ? H5Screate(H5S_SCALAR)
                                             : H5Screate_simple(shape.rank(), dims, nullptr),
                           site, "create"),
                     H5Sclose);
  const Handle links = MakeParents(site);
  const Handle dataset(
      Check(H5Dcreate2(id_, object.c_str(), H5T_IEEE_F32LE, space, links, H5P_DEFAULT, H5P_DEFAULT),
            site, "create"),
      H5Dclose);
  Check(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()), site,
        "write");
  ThrowIfWriteFailed();
}

bool Hdf5File::Exists(const std::string& object) const {
  const Lock lock;
  return FollowHardLinks(id_, {path_, object});
}

std::vector<std::string> Hdf5File::Children(const std::string& group) const {
  const Lock lock;
  const Site site{path_, group};
  const Handle object = OpenObject(id_, site);
  if (H5Iget_type(object) != H5I_GROUP)
    throw DataError(fmt::format("[io.hdf5] {}: {}: is not a group", path_, group));
  std::vector<std::string> names;
  hsize_t index = 0;
  Check(H5Literate(object, H5_INDEX_NAME, H5_ITER_INC, &index, AppendName, &names), site,
        "list the members");
  return names;
}

// The library visits each group once, even if links form a cycle.
std::vector<std::string> Hdf5File::Datasets() const {
  const Lock lock;
  std::vector<std::string> names, datasets;
  Check(H5Lvisit(id_, H5_INDEX_NAME, H5_ITER_INC, AppendName, &names), {path_, kWholeFile},
        "list the members");
  for (const std::string& name : names) {
    const std::string path = "/" + name;
    if (H5Iget_type(OpenObject(id_, {path_, path})) == H5I_DATASET) datasets.push_back(path);
  }
  return datasets;
}

Shape Hdf5File::ShapeOf(const std::string& object) const {
  const Lock lock;
  const Site site{path_, object};
  return ReadShape(OpenDataset(id_, site), site);
}

std::string Hdf5File::TypeOf(const std::string& object) const {
  const Lock lock;
  const Site site{path_, object};
  const Handle dataset = OpenDataset(id_, site);
  return NameOfType(Handle(Check(H5Dget_type(dataset), site, "read the type"), H5Tclose));
}

std::vector<float> Hdf5File::ReadFloats(const std::string& object) const {
  const Lock lock;
  const Site site{path_, object};
  const Handle dataset = OpenDataset(id_, site);
  const Handle type(Check(H5Dget_type(dataset), site, "read the type"), H5Tclose);
  if (H5Tget_class(type) != H5T_FLOAT) {
    throw DataError(fmt::format("[io.hdf5] {}: {}: the elements are not floating-point numbers",
                                path_, object));
  }
  const Shape shape = ReadShape(dataset, site);
  CheckStorage(dataset, shape, H5Tget_size(type), bytes_, site);
  std::vector<float> data(static_cast<size_t>(shape.size()));
  if (!data.empty()) {
    Check(H5Dread(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()), site,
          "read");
  }
  return data;
}

}  // namespace carole::io
