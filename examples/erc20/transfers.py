"""Indexes ERC-20 transfers: one call for each event of a block, one row for each that is a transfer."""

from typing import Any

from blockx import Context, function

TRANSFER = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


@function
def decode_transfer(ctx: Context, event: dict[str, Any]) -> dict[str, Any] | None:
    """The row of an ERC-20 transfer, or None for any other event.

    An ERC-721 transfer has the same selector, but its token number is a fourth topic and its data is empty.
    """
    topics, data = event["topics"], event["data"]
    if event["selector"] != TRANSFER or len(topics) != 3 or len(data) != 2 + 64:
        return None
    assert ctx.block is not None
    return {
        "block_id": ctx.block.id,
        "height": ctx.block.height,
        "tx_id": event["tx_id"],
        "idx": event["idx"],
        "token": event["contract_id"],
        "sender": "0x" + topics[1][-40:],
        "recipient": "0x" + topics[2][-40:],
        "value": int(data, 16),
    }
