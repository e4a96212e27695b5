"""Header blocks from memory are those that hpack makes and reads, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import hpack
import pytest
from hpack.struct import NeverIndexedHeaderTuple

from blockx.rpc.blocks import MAX_BLOCK_BYTES, MAX_BLOCKS, BlockDecoder, BlockEncoder

COMMON = [(":status", "200"), ("content-type", "application/grpc+proto")]
LARGE = [("large", "x" * 4 * MAX_BLOCK_BYTES)]
ROUNDS = 2_000


def headers_of_some_call(source: random.Random) -> list[Any]:
    """Often the same, sometimes new, sometimes too large for the memory or for the table, sometimes not to be kept."""
    text = str(source.randrange(40))
    choices: list[list[Any]] = [
        COMMON,
        [*COMMON, ("grpc-status", "0")],
        [("grpc-status", "5"), ("grpc-message", text)],
        [*COMMON, NeverIndexedHeaderTuple("content-type", "application/grpc+proto")],
        [NeverIndexedHeaderTuple("grpc-timeout", text)],
        [("name", text * source.choice([1, 10, 3000]))],
        LARGE,
    ]
    return source.choices(choices, weights=[20, 20, 2, 4, 4, 1, 2])[0]


@pytest.mark.parametrize("seed", range(3))
def test_blocks_are_those_of_an_encoder_and_a_decoder_without_memory(seed: int) -> None:
    source = random.Random(seed)
    encoder, plain_encoder = BlockEncoder(), hpack.Encoder()
    decoder, plain_decoder = BlockDecoder(1 << 20), hpack.Decoder(1 << 20)
    for _ in range(ROUNDS):
        if source.random() < 0.01:
            encoder.header_table_size = plain_encoder.header_table_size = source.choice([0, 100, 4096])
        headers = headers_of_some_call(source)
        block = encoder.encode(headers)
        assert block == plain_encoder.encode(headers)
        assert decoder.decode(block, raw=True) == plain_decoder.decode(block, raw=True)


def test_what_was_never_to_be_indexed_once_may_be_indexed_later() -> None:
    encoder, plain_encoder = BlockEncoder(), hpack.Encoder()
    for headers in ([NeverIndexedHeaderTuple("name", "value")], [("name", "value")], [("name", "value")]):
        assert encoder.encode(headers) == plain_encoder.encode(headers)


def test_a_repeated_block_is_read_from_memory() -> None:
    encoder, decoder = BlockEncoder(), BlockDecoder(1 << 20)
    first, second, third = ([*decoder.decode(encoder.encode(COMMON), raw=True)] for _ in range(3))
    assert second[1] is not first[1]
    assert third[1] is second[1]


def test_what_a_caller_does_to_the_headers_is_not_remembered() -> None:
    encoder, decoder = BlockEncoder(), BlockDecoder(1 << 20)
    for _ in range(3):
        headers = decoder.decode(encoder.encode(COMMON), raw=True)
        assert len(headers) == len(COMMON)
        headers.clear()


def test_the_memory_of_blocks_is_bounded() -> None:
    decoder = BlockDecoder(1 << 20)
    literal_without_index = b"\x00\x01a"
    for number in range(10 * MAX_BLOCKS):
        text = str(number).encode()
        block = literal_without_index + bytes([len(text)]) + text
        assert decoder.decode(block, raw=True) == [(b"a", text)]
    assert len(decoder.remembered) <= MAX_BLOCKS
    long = b"\x00\x01a\x7f\xe1\x07" + b"x" * (127 + 0x61 + 7 * 128)
    decoder.decode(long, raw=True)
    assert long not in decoder.remembered
