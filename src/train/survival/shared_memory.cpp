#include "src/train/survival/shared_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/core/divide_up.h"
#include "src/core/error.h"
#include "src/core/files/disk.h"

namespace carole::train {
namespace {

constexpr char kName[] = "carole-state";  // only for error messages and /proc
constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;
#ifndef MADV_COLLAPSE
constexpr int MADV_COLLAPSE = 25;
#endif

size_t RoundUp(size_t bytes, size_t unit) { return DivideUp(bytes, unit) * unit; }

// Returns unused addresses at a multiple of a huge page, reserved without memory; null if there are
// none.
std::byte* ReserveAligned(size_t bytes) {
  void* reserved = mmap(nullptr, bytes + kHugePage, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(reserved);
  const size_t before = RoundUp(address, kHugePage) - address;
  auto* begin = static_cast<std::byte*>(reserved) + before;
  if (before > 0) munmap(reserved, before);
  if (before < kHugePage) munmap(begin + bytes, kHugePage - before);
  return begin;
}

}  // namespace

SharedMemory::SharedMemory() : file_(memfd_create(kName, MFD_CLOEXEC)) {
  if (!file_.is_open()) {
    throw ConfigError(
        fmt::format("[survivors] shared memory: cannot be created: {}", std::strerror(errno)));
  }
}

std::shared_ptr<std::byte> SharedMemory::Append(size_t bytes) {
  const bool is_big = bytes >= kHugePage;
  const uint64_t position = RoundUp(end_, is_big ? kHugePage : kPage);
  const size_t rounded = RoundUp(bytes, kPage);
  if (ftruncate(file_.get(), static_cast<off_t>(position + rounded)) != 0) return nullptr;
  std::byte* place = is_big ? ReserveAligned(rounded) : nullptr;
  void* begin =
      mmap(place, rounded, PROT_READ | PROT_WRITE, MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED),
           file_.get(), static_cast<off_t>(position));
  if (begin == MAP_FAILED) {
    if (place != nullptr) munmap(place, rounded);
    return nullptr;
  }
  std::memset(begin, 0, rounded);  // so that the memory lies near this thread's core
  // Huge pages reduce TLB misses, as in Buffer. Shared memory gets them only on request.
  if (is_big) (void)madvise(begin, rounded / kHugePage * kHugePage, MADV_COLLAPSE);
  auto* data = static_cast<std::byte*>(begin);
  regions_.push_back({.begin = data, .bytes = bytes, .position = position});
  end_ = position + rounded;
  return {data, [rounded](std::byte* p) { munmap(p, rounded); }};
}

std::optional<uint64_t> SharedMemory::PositionOf(const std::byte* address) const {
  for (const Region& region : regions_) {
    if (address >= region.begin && address < region.begin + region.bytes)
      return region.position + static_cast<uint64_t>(address - region.begin);
  }
  return std::nullopt;
}

std::span<const std::byte> MapForReading(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) ThrowDiskError("survivors", kName, "read", errno);
  const auto bytes = static_cast<size_t>(status.st_size);
  void* begin = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  if (begin == MAP_FAILED) ThrowDiskError("survivors", kName, "map", errno);
  return {static_cast<const std::byte*>(begin), bytes};
}

}  // namespace carole::train
