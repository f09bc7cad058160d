#include "src/tensor/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "src/core/check.h"
#include "src/core/error.h"

namespace carole {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* p = rounded < bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (p == nullptr) {
    throw ConfigError(
        fmt::format("[memory] buffer: cannot allocate {:.1f} MiB of memory; use a smaller {} or a "
                    "machine with more memory",
                    bytes / 1048576.0, Option("batch_size")));
  }
  // Huge pages reduce TLB misses of kernels that stream through memory. If the operating system
  // refuses them, normal pages work as well.
  if (alignment == kHugePage) (void)madvise(p, rounded, MADV_HUGEPAGE);
  std::memset(p, 0, rounded);
  data_.reset(static_cast<std::byte*>(p));
}

void DiscardPages(std::byte* data, size_t bytes) {
  if (bytes >= kHugePage) (void)madvise(data, bytes / kHugePage * kHugePage, MADV_DONTNEED);
}

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

}  // namespace carole
