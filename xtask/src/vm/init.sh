#!/bin/sh
# The first process of a guest of `cargo xtask vm`.
export PATH=/bin
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
busybox mount -t devtmpfs dev /dev
busybox mount -t tmpfs tmp /tmp
busybox mount -t cgroup2 cgroup2 /sys/fs/cgroup
busybox mount -t bpf bpf /sys/fs/bpf
for module in /modules/*.ko; do
    busybox insmod "$module" || echo "cannot load $module"
done
vm-guest /bin/readylb
busybox poweroff -f
