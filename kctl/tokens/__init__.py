"""`kctl tokens`."""

from kctl.command.noun import Noun

tokens = Noun(
    "tokens",
    {
        "list": ("kctl.tokens.list:list_tokens", "List delegation tokens."),
        "create": ("kctl.tokens.create:create", "Create a delegation token."),
        "renew": ("kctl.tokens.renew:renew", "Extend the lifetime of a delegation token."),
        "expire": ("kctl.tokens.expire:expire", "Expire a delegation token, now or later."),
    },
    help="Create, renew and expire delegation tokens.",
)
