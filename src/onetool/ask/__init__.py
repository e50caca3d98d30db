"""A model that uses the tools: the loop behind `ask`, its sessions, and the providers of models.

    loop          ask the model, run the tools that it calls, give it the results, until there is an answer
    messages      messages and tools in one form, and our own words to a model
    events        what happens, in order; errors: why there is no answer
    prompts       what the model is given at each step
    model_client  sends prompts and reads replies, also streamed ones; endpoint: its URL and errors
    model_choice  which provider and model, if nobody said it
    providers/    adapters of the providers' APIs
    sessions/     what was said, kept in files

Nothing here knows the app: it is given tools, an HTTP client and settings. No library of a provider is used.
"""
