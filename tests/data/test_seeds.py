"""Random numbers of different uses have nothing in common."""

from nmt.data.seeds import Use, generator, mixed


def test_no_two_uses_and_keys_share_a_stream() -> None:
    """Zeros at the end of a key are the trap: numpy does not see them."""
    keys = [(), *((seed,) for seed in (1, 2, 2**40)), *((seed, *rest) for seed in (1, 2) for rest in ((0,), (1,), (1, 2)))]
    found = [mixed(use, *key) for use in Use for key in keys if not key or key[-1]]
    assert len(set(found)) == len(found)
    zeros = [mixed(use, *[0] * length) for use in Use for length in range(4)]
    assert len(set(zeros)) == len(Use)  # of one use all keys have one length
    drawn = [tuple(generator(use, 1, 0).integers(0, 1 << 62, 4)) for use in Use]
    assert len(set(drawn)) == len(Use)


def test_they_are_the_same_each_time() -> None:
    assert mixed(Use.DROPOUT, 1, 2, 3) == mixed(Use.DROPOUT, 1, 2, 3)
    assert generator(Use.ORDER, 5).random() == generator(Use.ORDER, 5).random()
