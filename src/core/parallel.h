// Independent pieces of work on several threads.
#pragma once

#include <cstdint>
#include <functional>

namespace carole {

// Calls work(i) once for each i in [0, count), in order of i as threads come free. `tick` (may be
// empty) is called on the calling thread about twice a second and at the end. When a call throws,
// no new ones start, and the error of the lowest i is thrown here. threads 0: one for each core.
void ParallelFor(int64_t count, int threads, const std::function<void(int64_t)>& work,
                 const std::function<void()>& tick = {});

}  // namespace carole
