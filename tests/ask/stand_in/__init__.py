"""A hosted model that can't be had here: a real HTTP server on loopback that speaks the wire protocols of all four
providers, streaming and not. The model behind it is a script.

    with StandIn() as model:
        model.will(Says("Let me look.", calls=[Wants("time__now", {})]), Says("It is noon."))
        …                                         # model.urls["openai"] is the base URL, as `ask` is configured
        assert model.seen[0].tools == ["time__now"]
        assert not model.refused                  # it refuses what the real ones refuse, and remembers

    script       what a model does: Says, Fails, Breaks, Hangs, Raw
    server       StandIn: which request is whose, whether it is let in, what comes back
    seen         one request, as tests look at it
    openai, ollama, gemini, anthropic      one protocol each: a script as bytes, and what a request must look like
    wire         what these share
    official     the providers' own clients, with which `test_stand_in.py` shows that it is right
"""

from ask.stand_in.script import Breaks, Fails, Hangs, Raw, Says, Wants
from ask.stand_in.seen import Seen
from ask.stand_in.server import StandIn

__all__ = ["Breaks", "Fails", "Hangs", "Raw", "Says", "Seen", "StandIn", "Wants"]
