// SPDX-License-Identifier: Apache-2.0
//
// A window of SDL 2 (packages libsdl2-dev and libsdl2-ttf-dev) that shows what it receives, and what it was told while it
// was inactive. Its loop is its own; what came from the bus is taken once in each frame:
//
//     cc -o window sdl2.c $(pkg-config --cflags --libs sdl2 SDL2_ttf gio-2.0)
//     ./window & carillon post News text="it rains"

#include <SDL.h>
#include <SDL_ttf.h>
#include <stdio.h>

#include "inbox.h"

#define LINES 8

static char state[64], lines[LINES][128];
static int count;
static gboolean active;

static void show_state(const char *text, gboolean is_active)
{
    g_strlcpy(state, text, sizeof state);
    active = is_active;
    printf("%s\n", text);
}

static void show_line(const char *text)
{
    if (count == LINES)
        memmove(lines[0], lines[1], sizeof lines[0] * --count);
    g_strlcpy(lines[count++], text, sizeof lines[0]);
    printf("%s\n", text);
}

static void draw(SDL_Renderer *renderer, TTF_Font *font, int row, const char *text, SDL_Color color)
{
    SDL_Surface *surface = TTF_RenderUTF8_Blended(font, text, color);
    if (surface == NULL)
        return;
    SDL_Texture *texture = SDL_CreateTextureFromSurface(renderer, surface);
    SDL_RenderCopy(renderer, texture, NULL, &(SDL_Rect){8, 8 + 20 * row, surface->w, surface->h});
    SDL_DestroyTexture(texture);
    SDL_FreeSurface(surface);
}

int main(int argc, char *argv[])
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    SDL_Window *window = NULL;
    SDL_Renderer *renderer = NULL;
    TTF_Font *font = NULL;
    if (SDL_Init(SDL_INIT_VIDEO) == 0 && TTF_Init() == 0
        && (window = SDL_CreateWindow(argc > 1 ? argv[1] : "SDL 2", SDL_WINDOWPOS_UNDEFINED, SDL_WINDOWPOS_UNDEFINED, 320,
                                      200, SDL_WINDOW_RESIZABLE)) != NULL
        && (renderer = SDL_CreateRenderer(window, -1, 0)) != NULL)
        font = TTF_OpenFont("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", 13);
    if (font == NULL) {
        fprintf(stderr, "window: %s\n", SDL_GetError());
        return 1;
    }
    observe();
    for (SDL_Event event = {0}; event.type != SDL_QUIT; SDL_WaitEventTimeout(&event, 16)) {
        while (g_main_context_iteration(NULL, FALSE)) {
        }
        SDL_SetRenderDrawColor(renderer, 246, 246, 246, 255);
        SDL_RenderClear(renderer);
        draw(renderer, font, 0, state, active ? (SDL_Color){26, 127, 55, 255} : (SDL_Color){110, 119, 129, 255});
        for (int row = 0; row < count; row++)
            draw(renderer, font, row + 1, lines[row], (SDL_Color){31, 35, 40, 255});
        SDL_RenderPresent(renderer);
    }
    return 0;
}
