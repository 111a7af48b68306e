"""`kctl tokens`."""

from kctl.command.noun import Noun

tokens = Noun(
    "tokens",
    {
        "list": ("kctl.tokens.list:list_tokens", "List delegation tokens."),
        "create": ("kctl.tokens.create:create", "Create a delegation token."),
        "renew": ("kctl.tokens.renew:renew", "Put off when a delegation token expires."),
        "expire": ("kctl.tokens.expire:expire", "Have a delegation token expire now, or at a time."),
    },
    help="Create, renew and expire delegation tokens.",
)
