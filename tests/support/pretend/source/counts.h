// What a program has asked of the devices, as a GPU would feel it. Several threads count at once.
#pragma once

#include <atomic>
#include <cstdint>

namespace pretend {

struct Counts {
  std::atomic<int64_t> ops{0};      // kernels
  std::atomic<int64_t> up{0};       // transfers from the host to a device
  std::atomic<int64_t> down{0};     // transfers from a device to the host
  std::atomic<int64_t> across{0};   // transfers from one device to another
  std::atomic<int64_t> scalars{0};  // times at which the host waits for a device: a value, a size, a synchronisation
};

inline Counts counts;

inline void count(std::atomic<int64_t>& of, int64_t times = 1) {
  of.fetch_add(times, std::memory_order_relaxed);
}

}  // namespace pretend
