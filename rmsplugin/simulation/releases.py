"""Releases: when running jobs give their processors back, by their estimates; in time order, with sums over buckets."""

from __future__ import annotations

from bisect import bisect_left, insort

#: With buckets of some hundreds, adding to one and passing over all take about the same time for 100,000 running jobs.
LARGEST_BUCKET = 512

Release = tuple[float, int, int]  # estimated end in seconds, job, its processors


class _Bucket:
    """Releases next to each other in time, and the sum of their processors."""

    __slots__ = ("items", "processors")

    def __init__(self, items: list[Release]) -> None:
        self.items = items
        self.processors = sum(processors for _, _, processors in items)


class Releases:
    """The estimated ends of the running jobs.

    They lie in buckets of some hundreds. To add one, to remove one, and to find when so many processors are free takes
    steps in the number of buckets and in the size of one.
    """

    def __init__(self, largest_bucket: int = LARGEST_BUCKET) -> None:
        self._largest_bucket = largest_bucket
        self._buckets = [_Bucket([])]  # sorted; only a single one may be empty

    def add(self, end_s: float, job: int, processors: int) -> None:
        """Add a job that starts."""
        release = (end_s, job, processors)
        index = self._index(release)
        bucket = self._buckets[index]
        insort(bucket.items, release)
        bucket.processors += processors
        if len(bucket.items) > self._largest_bucket:
            half = len(bucket.items) // 2
            self._buckets[index : index + 1] = [_Bucket(bucket.items[:half]), _Bucket(bucket.items[half:])]

    def remove(self, end_s: float, job: int, processors: int) -> None:
        """Remove a job that ends, whenever its end was estimated."""
        release = (end_s, job, processors)
        index = self._index(release)
        bucket = self._buckets[index]
        del bucket.items[bisect_left(bucket.items, release)]
        bucket.processors -= processors
        if not bucket.items and len(self._buckets) > 1:
            del self._buckets[index]

    def shadow(self, missing: int) -> tuple[float, int]:
        """The time when so many processors are free by the estimates, and how many more are free then.

        Args:
            missing: processors, at least 1, at most those of all running jobs.
        """
        shadow_s = None
        for bucket in self._buckets:
            if shadow_s is None and missing > bucket.processors:
                missing -= bucket.processors
                continue
            for end_s, _, processors in bucket.items:
                if shadow_s is not None and end_s > shadow_s:
                    return shadow_s, -missing
                missing -= processors
                if shadow_s is None and missing <= 0:
                    shadow_s = end_s
        if shadow_s is None:
            raise ValueError(f"{missing} processors more than all jobs that run have")
        return shadow_s, -missing

    def _index(self, release: Release) -> int:
        """The bucket that contains a release, or would."""
        buckets = self._buckets
        if len(buckets) == 1:
            return 0
        return min(bisect_left(buckets, release, key=lambda bucket: bucket.items[-1]), len(buckets) - 1)
