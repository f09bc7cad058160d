#include "src/core/files/open_file_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace carole {

std::optional<size_t> RaiseOpenFileLimit(size_t more) {
  constexpr size_t kReserve = 256;  // files of libraries, checkpoints, sockets
  std::error_code error;
  const std::filesystem::directory_iterator open_files("/proc/self/fd", error);
  const size_t needed =
      static_cast<size_t>(std::distance(begin(open_files), end(open_files))) + more;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed + kReserve)
    return std::nullopt;
  if (limit.rlim_max <= needed) return limit.rlim_max;
  limit.rlim_cur = std::min<rlim_t>(needed + kReserve, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);  // if this fails, opening a file reports it
  return std::nullopt;
}

}  // namespace carole
